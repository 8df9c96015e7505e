"""`graft patch import`: a pull request or commit of upstream as a patch of the series, with its record."""

from __future__ import annotations

import ast
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graft.commands.patch_pins import check_component, locked_file
from graft.commands.patch_sources import tree_of
from graft.commands.session import Session
from graft.errors import BadInput
from graft.lock import load_lock
from graft.patching import Malformed, SourceTree, check_safety, judge, parse, table, touched_paths
from graft.patching.adopt import Difference, difference, id_of, is_one_commit, license_of, patch_file
from graft.patching.safety import check_paths
from graft.patching.series_text import new_series, with_record
from graft.patching.swap import Edit, editing
from graft.patching.upstream import Address, Upstream, base_of, check_sha, from_clone, from_host, parse_url
from graft.patchset import Patch, PatchRecord, PatchSet, load_patchset
from graft.recipe import load_recipe, recipe_names

#: What a record needs that no commit says, and how to say it.
ASKED = {
    "id": "--id NAME (lower-case words with dashes)",
    "title": "--title TEXT (it has more than one commit)",
    "reason": "--reason TEXT (why it is needed)",
    "until": "--until TEXT (what retires it)",
    "test": "--test FILE (a test that fails without it)",
    "target": "--target wheel or --target source",
    "author": "--author NAME",
    "license": "--license NAME (neither the files nor LICENSE say one)",
}
MAX_TEST = 1_000_000
#: As PatchRecord has it.
ID_LIMIT = 80


def import_patch(
    session: Session,
    url: str,
    *,
    head: str,
    component: str,
    clone: Path | None = None,
    without_tests: bool = False,
    record: Mapping[str, str],
    address_of: Callable[[Address], str] = lambda address: address.repository,
) -> None:
    """Add a pull request or commit to a series: the bytes of its difference, and a record.

    clone:      read from it, without network.
    record:     what the commit does not say, by the names of the options.
    address_of: where git finds the repository of an address.
    Raises FetchFailed when the head is another one, BadInput with everything that is missing; nothing is written then.
    """
    address = parse_url(url)
    _refuse_blank(record)
    check_sha(head, "--head")
    if "base" in record:
        check_sha(record["base"], "--base")
    if address.kind == "commit" and not head.startswith(address.name):
        raise BadInput(f"the address names {address.name}, --head {head}", where="arguments", cure="give one commit")
    check_component(component)
    _check_known(session, component)
    with _opened(address, head, record.get("base"), clone, address_of(address), session) as upstream:
        proposed = _propose(upstream, address, record.get("base"), without_tests)
    with editing(session.paths, session.console.say) as edit:
        _add(session, edit, component, proposed, record)


def _refuse_blank(record: Mapping[str, str]) -> None:
    blank = [f"--{name}" for name, value in record.items() if not value.strip()]
    if blank:
        raise BadInput(
            f"{', '.join(blank)}: nothing but blanks",
            where=blank[0],
            cure="give it a value, or leave the option out",
        )


def _check_known(session: Session, component: str) -> None:
    """Raises BadInput for a component that no recipe has."""
    recipe = load_recipe(session.paths, session.project, session.recipe)
    if component in recipe.components:
        return
    others = (name for name in recipe_names(session.paths) if name != recipe.recipe)
    if not any(component in load_recipe(session.paths, session.project, name).components for name in others):
        raise BadInput(
            f"no recipe has a component {component!r}",
            where="--component",
            cure=f"recipe {recipe.recipe} has: {', '.join(recipe.components)}",
        )


@dataclass(frozen=True)
class _Proposal:
    """What upstream says: the patch's file, and the fields of its record that are known."""

    difference: Difference
    message: str
    known: Mapping[str, str]


def _opened(
    address: Address, head: str, base: str | None, clone: Path | None, url: str, session: Session
) -> AbstractContextManager[Upstream]:
    if clone is not None:
        if address.ref is not None:
            session.console.say(f"read from {clone}: nobody asked {address.host} whether this is its head")
        return from_clone(clone, head, base)
    if session.offline:
        raise BadInput("offline, and a git host must be asked", where="OFFLINE", cure="use --from CLONE")
    session.console.say(f"• read {address.origin}")
    return from_host(address, head, base, url)


def _propose(upstream: Upstream, address: Address, given: str | None, without_tests: bool) -> _Proposal:
    base = base_of(upstream, address, given)
    found = difference(upstream, base, without_tests=without_tests)
    head = upstream.head
    whole = address.kind == "commit" or is_one_commit(head, base)
    known = {
        "title": head.subject if whole else "",
        "author": head.author,
        "license": license_of(upstream, found) or "",
        "origin": address.origin,
        "head": head.id,
        "base": base,
        "upstream": "backport",
    }
    return _Proposal(found, head.text if whole else "", {key: value for key, value in known.items() if value})


def _add(session: Session, edit: Edit, component: str, proposed: _Proposal, given: Mapping[str, str]) -> None:
    # Before anything is judged or downloaded: who edits a file meanwhile keeps it.
    old = edit.contents(component)
    series = _series(session, component)
    fields = {**proposed.known, **given}
    if series is not None:
        fields.setdefault("target", series.patches[0].record.target)
    if "title" in fields:
        fields.setdefault("id", id_of(fields["title"]))
    record, test = _record(fields, series)
    data = patch_file(record, proposed.message or record.title, proposed.difference)
    verdict = _check(session, component, record, data, series)
    new = {**old, record.file: (0o644, data), record.test: (0o644, test), "series.yaml": _text(old, component, record)}
    edit.replace(component, old, new)
    for path in proposed.difference.left_out:
        session.console.say(f"  left out: {path}")
    for line in (f"add to recipes/{session.recipe}.yaml, below patches:  - {component}/{record.id}", "then: make lock"):
        session.console.say(line)
    data_out = {
        "patch": f"{component}/{record.id}",
        "file": f"patches/{component}/{record.file}",
        "head": record.head,
        "base": record.base,
        "verdict": verdict,
        "left_out": list(proposed.difference.left_out),
    }
    session.console.result(f"{component}/{record.id}", data_out)


def _series(session: Session, component: str) -> PatchSet | None:
    folder = session.paths.patches / component
    return load_patchset(folder) if (folder / "series.yaml").exists() else None


def _record(fields: Mapping[str, str], series: PatchSet | None) -> tuple[PatchRecord, bytes]:
    """The record and its test. Raises BadInput with everything that is missing or wrong."""
    missing = [f"missing: {how}" for name, how in ASKED.items() if not fields.get(name)]
    problems: list[str] = []
    test = b""
    if fields.get("test"):
        try:
            test = _test_file(Path(fields["test"]))
        except BadInput as problem:
            problems.append(f"--test: {problem.what}")
    if series is not None and fields.get("id") in {patch.id for patch in series.patches}:
        problems.append(f"--id: the series has a patch {fields['id']} already")
    if len(fields.get("id", "")) > ID_LIMIT:
        problems.append(f"--id: {len(fields['id'])} characters are too many; {ID_LIMIT} are allowed")
    data: dict[str, Any] = {name: value for name, value in fields.items() if name != "test" and value}
    made = None
    try:
        made = PatchRecord.model_validate({**data, "tests": [f"tests/test_{_words(data.get('id', 'x'))}.py"]})
    except ValidationError as problem:
        problems += [
            f"--{error['loc'][0]}: {str(error['msg']).removeprefix('Value error, ')}"
            for error in problem.errors(include_url=False)
            # The name of the test is made from the id; of a long one, its length was said.
            if error["type"] != "missing"
            and error["loc"][0] != "tests"
            and not (error["loc"][0] == "id" and len(fields.get("id", "")) > ID_LIMIT)
        ]
    if missing or problems or made is None:
        raise _refusal(missing, problems)
    return made, test


def _refusal(missing: Sequence[str], problems: Sequence[str]) -> BadInput:
    """What is wrong with the options, in one message; its place is the option when it is about one."""
    lines = [*missing, *problems]
    cures = ["give what is missing as well"] if missing else []
    cures += ["correct " + ", ".join(dict.fromkeys(line.partition(":")[0] for line in problems))] if problems else []
    option = lines[0].removeprefix("missing: ").split(":")[0].split()[0] if len(lines) == 1 else "arguments"
    return BadInput(
        "the record is not complete; nothing was written\n" + "\n".join(f"  {line}" for line in lines),
        where=option,
        cure="; ".join(cures),
    )


def _words(patch_id: str) -> str:
    return patch_id.replace("-", "_")


def _test_file(path: Path) -> bytes:
    """The bytes of a test: Python with a function `test_*`. Raises BadInput."""
    try:
        # Opening a FIFO would wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadInput(f"{path} is not a plain file")
        with path.open("rb") as file:
            data = file.read(MAX_TEST + 1)
        if len(data) > MAX_TEST:
            raise BadInput(f"{path} is larger than {MAX_TEST} bytes")
        tree = ast.parse(data)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}") from None
    except (SyntaxError, ValueError) as problem:
        raise BadInput(f"{path} is not Python: {problem}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body):
        raise BadInput(f"{path} has no function test_*")
    return data


def _check(session: Session, component: str, record: PatchRecord, data: bytes, series: PatchSet | None) -> str | None:
    """What is refused before an engine sees the patch, and paths outside the component.

    The verdict against the locked version, where its files are at hand; else None, and `make lock` will judge.
    """
    check_safety(data, record, where=record.origin)
    try:
        parsed = parse(data)
    except Malformed as problem:
        raise BadInput(f"the difference is no patch that Graft reads: {problem}", where=record.origin) from None
    patches = [*_listed(session, component, series), Patch(record, data, Path(record.file))]
    found = _locked_tree(session, component, record, {*touched_paths(patches)})
    if found is None:
        session.console.say(f"  the files of {component} are not at hand: make lock will judge the patch and its paths")
        return None
    version, tree = found
    check_paths(parsed, record, tree.all_names, where=record.origin)
    verdict = judge(tree, patches)[-1]
    say = session.console.say if verdict.verdict.is_applicable else session.console.warn
    say(f"against {component} {version}: {verdict.verdict}")
    if not verdict.verdict.is_applicable:
        session.console.say(table(component, [verdict]))
    return verdict.verdict


def _listed(session: Session, component: str, series: PatchSet | None) -> list[Patch]:
    """The patches that the recipe has already."""
    recipe = load_recipe(session.paths, session.project, session.recipe)
    return [patch for patch in series.patches if patch.id in recipe.patches_of(component)] if series is not None else []


def _locked_tree(
    session: Session, component: str, record: PatchRecord, paths: set[str]
) -> tuple[str, SourceTree] | None:
    """Version and files of the component in the lock; None when it is in no lock, or they are not at hand."""
    recipe = load_recipe(session.paths, session.project, session.recipe)
    if component not in recipe.components or not session.paths.lock(recipe.recipe).is_file():
        return None
    locked = load_lock(session.paths, recipe.recipe)
    pin = locked_file(locked, recipe, component)
    tree = tree_of(session, pin, record.target, paths) if pin is not None else None
    return (pin.version, tree) if pin is not None and tree is not None else None


def _text(old: Mapping[str, tuple[int, bytes]], component: str, record: PatchRecord) -> tuple[int, bytes]:
    data = record.model_dump(mode="json", exclude_defaults=True)
    if "series.yaml" not in old:
        return 0o644, new_series(component, data)
    mode, raw = old["series.yaml"]
    return mode, with_record(raw, Path("patches") / component / "series.yaml", data)
