"""`graft patch status`: every patch of every recipe against its pin. No network, no engine; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from graft.commands.patch_check import hunk_reports
from graft.commands.patch_sources import known_tree
from graft.commands.session import Session
from graft.errors import BadInput, LockStale
from graft.hashes import file_sha256
from graft.lock import Lock, PatchPin, load_lock
from graft.patching import SourceTree, Verdict, check_safety, judge, locked_symbols, one_target
from graft.patching.ends import end_of, evidence_files
from graft.patching.sources import touched_paths
from graft.patchset import Patch, PatchSet, load_patchset
from graft.recipe import Recipe, load_recipe, recipe_names
from graft.report import HunkReport, counted
from graft.trial import last_result, results_folder

#: What a row's verdict was read from.
JUDGED, LOCKED, UNKNOWN = "judged", "locked", "unknown"


@dataclass(frozen=True)
class Row:
    """One patch in one recipe. recipe: empty for a patch that none uses.

    lock:    fresh, changed (the patch), stale (the version) or missing.
    verdict: of the series on the pinned files; from `source` locked: as the lock recorded it, the files are not here.
    symbols: `path::name` of what it changes -> whether its code changed since the lock; None: the lock has no word.
    """

    recipe: str
    component: str
    version: str
    patch: str
    verdict: str
    source: str
    lock: str
    hunks: tuple[HunkReport, ...]
    symbols: dict[str, bool | None]
    until: str
    end_reached: bool | None
    end: str
    test: str
    detail: str = ""

    def cells(self) -> list[str]:
        """The row of the table."""
        hunks = counted(self.hunks) or self.detail or "-"
        end = {True: "reached", False: "not yet", None: "?"}[self.end_reached]
        verdict = self.verdict if self.source == JUDGED else f"{self.verdict} ({self.source})"
        names = ", ".join(name.partition("::")[2] + (" (changed)" if new else "") for name, new in self.symbols.items())
        return [
            self.recipe or "-",
            f"{self.component} {self.version}".strip(),
            self.patch,
            verdict if self.lock == "fresh" or not self.recipe else f"{verdict}, lock {self.lock}",
            hunks,
            names or "-",
            f"{end}: {self.until}",
            self.test,
        ]


def status(session: Session, components: Sequence[str] = ()) -> None:
    """The table on stderr and one line, or JSON, on stdout. Raises BadInput for what cannot be read."""
    folders = {path.parent.name: path.parent for path in sorted(session.paths.patches.glob("[!.]*/series.yaml"))}
    for name in components:
        if name not in folders:
            there = ", ".join(folders) or "none"
            raise BadInput(f"{name} has no patches", where="arguments", cure=f"there is: {there}")
    sets = {name: load_patchset(folder) for name, folder in folders.items() if name in (components or folders)}
    rows: list[Row] = []
    for name in recipe_names(session.paths):
        recipe = load_recipe(session.paths, session.project, name)
        rows += _rows_of(session, recipe, sets)
    rows += _unused(session, sets, rows)
    columns = ("recipe", "component", "patch", "verdict", "hunks", "in", "until", "last test")
    session.console.table("patches", columns, [row.cells() for row in rows])
    wrong = [row for row in rows if row.verdict not in (Verdict.EXACT, Verdict.OFFSET)]
    ended = sum(1 for row in rows if row.end_reached)
    line = f"{len(rows)} patches: {len(rows) - len(wrong)} can be built, {len(wrong)} not; {ended} have served"
    session.console.result(line, {"patches": [_data(row) for row in rows]})


def _data(row: Row) -> dict[str, Any]:
    return {**asdict(row), "verdict": str(row.verdict)}


def _rows_of(session: Session, recipe: Recipe, sets: dict[str, PatchSet]) -> Iterable[Row]:
    locked = _lock(session, recipe)
    listed = dict.fromkeys(ref.partition("/")[0] for ref in recipe.patches)
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    for component in listed:
        if component not in sets:
            if not (session.paths.patches / component / "series.yaml").is_file():
                raise BadInput(f"{component} has no patches", where=where, cure="write patches/<component>/series.yaml")
            continue
        chosen = sets[component].select(recipe.patches_of(component), where)
        yield from _component_rows(session, recipe, component, chosen, locked)


def _component_rows(
    session: Session, recipe: Recipe, component: str, chosen: Sequence[Patch], locked: Lock | None
) -> Iterable[Row]:
    pinned = recipe.components[component]
    arches = [arch for arch in recipe.arches if pinned.on(arch)]
    used = [p for p in chosen if any(p.record.when.holds(pinned.version, arch) for arch in arches)]
    rows = {p.id: _blank(session, recipe, component, p) for p in chosen}
    tree = _tree(session, recipe, component, used, locked)
    groups = {
        tuple(p.id for p in here): here
        for arch in arches
        if (here := [p for p in used if p.record.when.holds(pinned.version, arch)])
    }
    for here in groups.values():
        found = _judged(session, component, pinned.version, here, tree, locked) if tree is not None else {}
        for patch in here:
            row = found.get(patch.id) or _from_lock(recipe, component, patch, locked)
            # The worst of its architectures; almost always they are equal.
            if rows[patch.id].verdict == Verdict.UNUSED or row["verdict"] not in (Verdict.EXACT, Verdict.OFFSET):
                rows[patch.id] = replace(rows[patch.id], **row)
    return [
        replace(row, lock=_lock_state(recipe, component, p, locked))
        for p, row in zip(chosen, rows.values(), strict=True)
    ]


def _blank(session: Session, recipe: Recipe | None, component: str, patch: Patch) -> Row:
    """A row of a patch that is not applied anywhere."""
    version = recipe.components[component].version if recipe is not None else ""
    when = patch.record.when
    meant = " ".join([when.version or "any version", *(when.arches or ())])
    detail = f"its `when` ({meant}) holds nowhere in this recipe" if recipe is not None else "no recipe lists it"
    end = end_of(patch.record.ends, version or None, SourceTree({}))
    return Row(
        recipe.recipe if recipe is not None else "",
        component,
        version,
        patch.id,
        Verdict.UNUSED,
        JUDGED,
        "fresh",
        (),
        {},
        patch.record.until,
        end.reached if recipe is not None else None,
        end.why,
        _test(session, component, patch),
        detail,
    )


def _judged(
    session: Session, component: str, version: str, here: Sequence[Patch], tree: SourceTree, locked: Lock | None
) -> dict[str, dict[str, Any]]:
    for patch in here:
        check_safety(patch.data, patch.record, where=session.paths.relative(patch.path))
    found: dict[str, dict[str, Any]] = {}
    entries = locked.patches.get(component, ()) if locked is not None else ()
    for patch, verdict in zip(here, judge(tree, here, locked_symbols(here, entries), tree), strict=True):
        end = end_of(patch.record.ends, version, tree, tree)
        found[patch.id] = {
            "verdict": verdict.verdict,
            "source": JUDGED,
            "hunks": hunk_reports(patch, verdict),
            "symbols": {f"{h.path}::{h.symbol}": h.changed for h in verdict.hunks if h.symbol},
            "end_reached": end.reached,
            "end": end.why,
            "detail": verdict.detail,
        }
    return found


def _from_lock(recipe: Recipe, component: str, patch: Patch, locked: Lock | None) -> dict[str, Any]:
    """What the lock says of the same bytes on the same version; nothing is known of others."""
    pin = _pin(component, patch, locked)
    end = end_of(patch.record.ends, recipe.components[component].version, SourceTree({}))
    known: dict[str, Any] = {"end_reached": end.reached, "end": end.why, "hunks": (), "symbols": {}}
    if pin is None or _lock_state(recipe, component, patch, locked) != "fresh":
        return {**known, "verdict": UNKNOWN, "source": UNKNOWN, "detail": "its files are not here: run make fetch"}
    verdict = Verdict.OFFSET if any(pin.offsets) else Verdict.EXACT
    detail = ", ".join(f"{offset:+d}" for offset in pin.offsets) + ", as locked"
    return {**known, "verdict": verdict, "source": LOCKED, "detail": detail, "symbols": dict.fromkeys(pin.symbols)}


def _unused(session: Session, sets: dict[str, PatchSet], rows: Sequence[Row]) -> Iterable[Row]:
    listed = {(row.component, row.patch) for row in rows}
    for component, found in sets.items():
        for patch in found.patches:
            if (component, patch.id) not in listed:
                yield _blank(session, None, component, patch)


def _tree(
    session: Session, recipe: Recipe, component: str, used: Sequence[Patch], locked: Lock | None
) -> SourceTree | None:
    """The pinned files, when they are at hand: not when the recipe pins a version that is not locked yet."""
    if locked is None or not used or _locked_version(locked, recipe, component) != recipe.components[component].version:
        return None
    paths = {*touched_paths(used), *evidence_files(used)}
    return known_tree(session, locked, recipe, component, one_target(component, used), paths)


def _locked_version(locked: Lock, recipe: Recipe, component: str) -> str | None:
    if component in locked.sources:
        return locked.sources[component].version
    name = recipe.components[component].distribution
    return next((pin.version for pin in locked.packages if pin.name == name and pin.use == "image"), None)


def _pin(component: str, patch: Patch, locked: Lock | None) -> PatchPin | None:
    entries = locked.patches.get(component, ()) if locked is not None else ()
    return next((pin for entry in entries for pin in entry.patches if pin.id == patch.id), None)


def _lock_state(recipe: Recipe, component: str, patch: Patch, locked: Lock | None) -> str:
    """Whether the lock holds these bytes of the patch, judged on this version."""
    pin = _pin(component, patch, locked)
    if pin is None or locked is None:
        return "missing"
    if _locked_version(locked, recipe, component) != recipe.components[component].version:
        return "stale"
    return "fresh" if pin.sha256 == file_sha256(patch.path) else "changed"


def _test(session: Session, component: str, patch: Patch) -> str:
    """The last red-green result, and whether it was of the bytes that are there now."""
    found = last_result(results_folder(session.paths.state), component, patch.id)
    if found is None:
        return "never run"
    same = found.patch_sha256 == file_sha256(patch.path) and found.test_sha256 == file_sha256(
        patch.path.parent / patch.record.test
    )
    return found.verdict if same else f"{found.verdict}, of other bytes"


def _lock(session: Session, recipe: Recipe) -> Lock | None:
    try:
        return load_lock(session.paths, recipe.recipe)
    except LockStale:
        return None
