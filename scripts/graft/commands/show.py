"""The verbs that only look: plan and render. No network, no engine."""

from __future__ import annotations

from graft.commands.estimate import estimate
from graft.commands.session import Session, last, make_plan, wanted
from graft.console import size
from graft.plan import Plan, first_difference
from graft.store import missing


def show_plan(session: Session, *, why: bool = False) -> None:
    """What would be fetched and built, with keys; `why` names the first input that differs from the last image."""
    planned = make_plan(session)
    console = session.console
    lacking = missing(session.store, wanted(session, planned))
    console.table(planned.tag, ("layer", "what", "input", "key"), _rows(planned))
    console.say(f"to fetch: {len(lacking)} files, {size(sum(item.pin.size for item in lacking))}")
    before = last(session)
    reason = _why(before, planned)
    seconds, rough = estimate(session, planned, before, sum(item.pin.size for item in lacking))
    console.say(f"duration: {rough}")
    if why:
        console.say(reason)
    console.result(
        planned.tag,
        {
            "tag": planned.tag,
            "key": planned.image.key,
            "inputs": dict(planned.image.inputs),
            "why": reason,
            "seconds": round(seconds),
            "duration": rough,
            "fetch": [{"file": item.file_name, "size": item.pin.size} for item in lacking],
            "components": {b.name: {"key": b.keyed.key, "inputs": dict(b.keyed.inputs)} for b in planned.builds},
            "overlays": {o.name: {"key": o.keyed.key, "inputs": dict(o.keyed.inputs)} for o in planned.overlays},
        },
    )


def show_render(session: Session) -> None:
    """The Dockerfile on stdout; how to build it by hand on stderr."""
    from graft.build import by_hand
    from graft.render import render

    planned = make_plan(session)
    rendered = render(session.paths, planned)
    folder = session.paths.contexts / f"{planned.recipe.recipe}-{planned.arch.name}"
    session.console.say("after `make image` the contexts lie on disk, and this builds the same by hand:")
    session.console.say(by_hand(planned, rendered, folder))
    data = {"dockerfile": rendered.text, "contexts": list(rendered.contexts)}
    session.console.result(rendered.text.rstrip("\n"), data)


def _rows(planned: Plan) -> list[list[str]]:
    base = planned.lock.base
    rows = [["base", f"{len(base.packages)} Debian packages", size(sum(p.size for p in base.packages)), ""]]
    rows += [[layer.name, f"{len(layer.packages)} wheels", size(layer.size), ""] for layer in planned.layers]
    for build in planned.builds:
        modules = ", ".join(build.component.modules)
        rows.append(
            [build.name, f"compile {modules} for {planned.arch.nvcc}", size(build.source.size), build.keyed.short]
        )
    for overlay in planned.overlays:
        rows.append([overlay.name, f"{len(overlay.patched.installed)} patched files", "", overlay.keyed.short])
    return rows


def _why(before: dict[str, str] | None, planned: Plan) -> str:
    if before is None:
        return "why: no image was built here yet"
    changed = first_difference(before, planned.image.inputs)
    return (
        "why: nothing differs from the last image" if changed is None else f"why: {changed} differs from the last image"
    )
