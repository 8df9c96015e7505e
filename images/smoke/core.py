"""The image holds the locked versions, vLLM was built from the recipe's commit, and the environment is the recipe's."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lib import facts
from lib.facts import Component, Facts
from lib.report import Report

# The container runtime sets these two; everything else comes from the image.
RUNTIME_ENV = {"HOSTNAME", "HOME"}

# Where build systems record the commit: vcs-versioning and setuptools-scm, torch, FlashInfer.
COMMIT_FILES = {"_version.py", "version.py", "_build_meta.py"}
COMMIT_NAMES = {"__commit_id__", "commit_id", "__git_version__", "git_version"}


def main() -> None:
    known = facts.load()
    report = Report("core")
    check_env(known, report, Path("/proc/self/environ").read_bytes())
    check_packages(known, report, sys.path)
    check_components(known, report, sys.path)
    report.finish()


def check_env(known: Facts, report: Report, environ: bytes) -> None:
    """The environment the container was started with (NUL-separated, from /proc) is the one of the plan."""
    # Not os.environ: the interpreter adds LC_CTYPE of its own in the C locale.
    pairs = [entry.split("=", 1) for entry in environ.decode("utf-8", "surrogateescape").split("\0") if "=" in entry]
    found = {name: value for name, value in pairs if name in known.env or name not in RUNTIME_ENV}
    # A value that the plan does not know may be a secret or a proxy: only its name goes into the report.
    wrong = [f"{name} is not in the plan" for name in sorted(found.keys() - known.env.keys())]
    wrong += [f"{name} is not set" for name in sorted(known.env.keys() - found.keys())]
    wrong += [
        f"{name} is not {known.env[name]!r}"
        for name in sorted(found.keys() & known.env.keys())
        if found[name] != known.env[name]
    ]
    report.check("environment", not wrong, "; ".join(wrong) or f"{len(found)} variables as planned")


def check_packages(known: Facts, report: Report, path: Sequence[str]) -> None:
    """What Python finds on `path` and what the plan names are the same distributions, each once, same version."""
    found: dict[str, list[str]] = {}
    for dist in importlib.metadata.distributions(path=list(path)):
        found.setdefault(facts.normalise(dist.name), []).append(dist.version)
    want = {facts.normalise(name): version for name, version in known.packages.items()}
    wrong = [f"{name} {want[name]} is missing" for name in sorted(want.keys() - found.keys())]
    wrong += [f"{name} {found[name][0]} is not in the lock" for name in sorted(found.keys() - want.keys())]
    for name in sorted(want.keys() & found.keys()):
        if len(found[name]) > 1:
            wrong.append(f"{name} is installed {len(found[name])} times: {', '.join(found[name])}")
        elif found[name][0] != want[name]:
            wrong.append(f"{name} is {found[name][0]}, the lock says {want[name]}")
    report.check("packages", not wrong, "; ".join(wrong) or f"all {len(found)} packages as locked")


def check_components(known: Facts, report: Report, path: Sequence[str]) -> None:
    """Version of each component, and the commit it says it was built from where the recipe names one."""
    for name, component in known.components.items():
        found = next(iter(importlib.metadata.distributions(name=component.distribution, path=list(path))), None)
        version = None if found is None else found.version
        report.check(
            f"version:{name}",
            version == component.version,
            f"{component.distribution} is {version or 'not installed'}, the recipe says {component.version}",
        )
        if component.commit is not None and found is not None:
            check_commit(report, name, component, found)


def check_commit(report: Report, name: str, component: Component, found: importlib.metadata.Distribution) -> None:
    recorded = recorded_commits(found)
    report.check(
        f"commit:{name}",
        bool(recorded) and all(same_commit(commit, component.commit or "") for commit in recorded.values()),
        f"the recipe says {component.commit}, "
        + (", ".join(f"{file} says {commit}" for file, commit in recorded.items()) or "no file records a commit"),
    )


def recorded_commits(found: importlib.metadata.Distribution) -> Mapping[str, str]:
    """file -> commit, as the distribution's top-level version files assign it. Read, not run."""
    commits = {}
    for file in found.files or []:
        if len(file.parts) != 2 or file.name not in COMMIT_FILES:
            continue
        for statement in ast.parse(file.read_text()).body:
            if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
                continue
            names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
            if names & COMMIT_NAMES and isinstance(statement.value.value, str):
                commits[str(file)] = statement.value.value
    return commits


def same_commit(recorded: str, wanted: str) -> bool:
    """Whether one is an abbreviation of the other; version files put a g in front of theirs."""
    recorded = recorded.removeprefix("g")
    return min(len(recorded), len(wanted)) >= 7 and (recorded.startswith(wanted) or wanted.startswith(recorded))


if __name__ == "__main__":
    main()
