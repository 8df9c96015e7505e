"""The verbs that only look: plan, render, lint. No network, no engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from graft.commands.compiling import turns_of
from graft.commands.components import reused
from graft.commands.estimate import estimate
from graft.commands.session import Session, any_plan, last, wanted
from graft.console import size
from graft.pins import Input
from graft.plan import Keyed, Plan, first_difference
from graft.report import comment
from graft.store import missing
from graft.unlocked import UnlockedPlan


def show_plan(session: Session, *, why: bool = False, report: str = "table") -> None:
    """What would be fetched and built, with keys.

    why: name the first input that differs from the last image. report: Markdown on stdout instead of the tag.
    """
    planned = any_plan(session)
    if isinstance(planned, UnlockedPlan):
        _show_unlocked(session, planned, why, report)
        return
    console = session.console
    lacking = missing(session.store, wanted(session, planned))
    have = reused(session, planned)
    columns, rows = ("layer", "what", "input", "key"), _rows(planned, have)
    console.table(planned.tag, columns, rows)
    fetch = f"to fetch: {len(lacking)} files, {size(sum(item.pin.size for item in lacking))}"
    console.say(fetch)
    before = last(session)
    reason = _why(before, planned.image)
    compiles = [b.name for b in planned.builds if b.name not in have]
    groups = [turn.names for turn in turns_of(session, planned, compiles, is_local=True)]
    seconds, rough = estimate(session, planned, before, sum(item.pin.size for item in lacking), have, groups)
    console.say(f"duration: {rough}")
    if why:
        console.say(reason)
    notes = [f"key: {planned.image.key}", fetch, *_also_tagged(planned)]
    console.result(
        comment(planned.tag, columns, rows, notes) if report == "md" else planned.tag,
        {
            **_keys(planned, reason),
            "seconds": round(seconds),
            "duration": rough,
            "fetch": [{"file": item.file_name, "size": item.pin.size} for item in lacking],
            "components": {b.name: {**_keyed(b.keyed), "reused": b.name in have} for b in planned.builds},
            "overlays": {o.name: _keyed(o.keyed) for o in planned.overlays},
        },
    )


def _show_unlocked(session: Session, planned: UnlockedPlan, why: bool, report: str) -> None:
    """The inputs one by one, because no lock names them, and what is made from them."""
    console = session.console
    columns, rows = ("input", "state", "identity", "why"), [_input_row(i) for i in planned.inputs]
    console.table(planned.tag, columns, rows)
    made = (*planned.sources, *planned.builds)
    console.table(
        "components", ("component", "stages", "key"), [[b.name, " ".join(b.stages), b.keyed.short] for b in made]
    )
    states = [i.state for i in planned.inputs]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    console.say(counted)
    for line in _also_tagged(planned):
        console.say(line)
    reason = _why(last(session), planned.image)
    if why:
        console.say(reason)
    notes = [f"key: {planned.image.key}; no lock: {counted}", *_also_tagged(planned)]
    console.result(
        comment(planned.tag, columns, rows, notes) if report == "md" else planned.tag,
        {
            **_keys(planned, reason),
            "unlocked": True,
            "channels": list(planned.channels),
            "fetch": [{**dataclasses.asdict(i), "state": i.state} for i in planned.inputs],
            "components": {b.name: _keyed(b.keyed) for b in made},
            "overlays": {},
        },
    )


def _also_tagged(planned: Plan | UnlockedPlan) -> list[str]:
    return [f"also tagged: {reference}" for reference in planned.channels]


def _input_row(item: Input) -> list[str]:
    return [item.name, item.state, item.identity, item.why]


def _keys(planned: Plan | UnlockedPlan, why: str) -> dict[str, Any]:
    return {"tag": planned.tag, "key": planned.image.key, "inputs": dict(planned.image.inputs), "why": why}


def _keyed(keyed: Keyed) -> dict[str, Any]:
    return {"key": keyed.key, "inputs": dict(keyed.inputs)}


def show_render(session: Session) -> None:
    """The Dockerfile on stdout; how to build it by hand on stderr."""
    from graft.build import by_hand
    from graft.render import render

    planned = any_plan(session)
    rendered = render(session.paths, planned)
    folder = session.paths.contexts / f"{planned.recipe.recipe}-{planned.arch.name}"
    if isinstance(planned, UnlockedPlan):
        session.console.say("no lock says what the contexts hold; with them on disk, this builds by hand:")
    else:
        session.console.say("after `make image` the contexts lie on disk, and this builds the same by hand:")
    session.console.say(by_hand(planned, rendered, folder))
    data = {"dockerfile": rendered.text, "contexts": list(rendered.contexts)}
    session.console.result(rendered.text.rstrip("\n"), data)


def _rows(planned: Plan, have: Collection[str]) -> list[list[str]]:
    base = planned.lock.base
    rows = [["base", f"{len(base.packages)} Debian packages", size(sum(p.size for p in base.packages)), ""]]
    rows += [[layer.name, f"{len(layer.packages)} wheels", size(layer.size), ""] for layer in planned.layers]
    for tree in planned.sources:
        rows.append([tree.name, f"source from {tree.source.origin}", size(tree.source.size), tree.keyed.short])
    for build in planned.builds:
        what = f"compile {', '.join(build.component.modules)}" if build.component.modules else "build"
        origin = f" from {build.source.origin}" if build.source.tree else ""
        what = f"{what} for {planned.arch.nvcc}{origin}"
        what = f"reused: {what}" if build.name in have else what
        rows.append([build.name, what, size(build.source.size), build.keyed.short])
    for overlay in planned.overlays:
        rows.append([overlay.name, f"{len(overlay.patched.installed)} patched files", "", overlay.keyed.short])
    return rows


def _why(before: dict[str, str] | None, image: Keyed) -> str:
    if before is None:
        return "why: no image was built here yet"
    changed = first_difference(before, image.inputs)
    return (
        "why: nothing differs from the last image" if changed is None else f"why: {changed} differs from the last image"
    )
