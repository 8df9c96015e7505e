"""docs/rules.md, from the rules themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from itertools import groupby

from graft.linting.model import PREFIX, RULES, Rule

WIDTH = 120
GROUPS = {
    "recipe": "Recipes",
    "plan": "Plans",
    "tags": "Tags",
    "lock": "Locks",
    "operators": "Operators",
    "patch": "Patches",
    "arch": "Architectures",
    "group": "Versions that belong together",
    "requires": "What wheels ask for",
    "overrides": "Overrides",
    "files": "Files",
    "pin": "Pins",
    "index": "Indexes",
    "wheel": "Wheels",
    "env": "Environment",
    "waiver": "Waivers",
}
HEAD = """# Rules of `make lint`

Made from the rules by `make golden`; do not edit. `make lint` holds every recipe (or `RECIPE=`) to all of them and
prints all findings at once: `file:line: level: what [rule]` and what to do. Exit 2 when one is an error; warnings and
notes do not fail. `graft lint --json` prints everything, waived findings too, and `graft lint --sarif` SARIF 2.1.0.

Nothing is downloaded and no engine is asked. What wheels say of themselves is read from the store and kept below
`.graft/lint`; a wheel that is not there is named in a note ("not checked"), never passed over.

Some rules can be waived, by the recipe that needs it. `file` is a glob over what the finding is about:

```yaml
waivers:
  - check: lint/patch-ended
    file: vllm/fix
    reason: the version that ends it has another fault
    until: vLLM 0.34
```
"""


def page() -> str:
    """The whole page."""
    by_group = sorted(RULES.values(), key=lambda rule: list(GROUPS).index(rule.group))
    parts = [HEAD]
    for group, rules in groupby(by_group, key=lambda rule: rule.group):
        parts.append(f"## {GROUPS[group]}\n")
        parts += ["\n".join(_lines(rule)) for rule in rules]
    return "\n".join(parts)


def _lines(rule: Rule) -> Iterable[str]:
    yield f"### {rule.id}\n"
    yield _filled(f"{rule.level.capitalize()}. {rule.what}")
    yield _filled(f"Why: {rule.why}")
    yield f"Fails:\n\n```\n{rule.example}\n```\n"
    yield _filled(f"Cure: {rule.cure}.")
    yield _filled(f"Waive: {_waive(rule)}.")


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def _waive(rule: Rule) -> str:
    if rule.id == "files-conflict":
        return "as the cure says; the gate holds the image to it"
    if rule.id == "pin-floating":
        return "`unlocked: true` makes it a warning"
    if rule.about is None:
        return "cannot be waived"
    return f"`check: {PREFIX}{rule.id}`, `file:` {rule.about}"
