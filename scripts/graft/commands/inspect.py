"""`graft inspect`: what GPU code an image holds, and what that means for one architecture."""

from __future__ import annotations

from contextlib import closing

from graft.arch import select
from graft.commands.programs import ready_engine
from graft.commands.session import Session
from graft.errors import GateFailed
from graft.inspection import inspect_image, matrix, read_program, summary
from graft.inspection.table import LEGEND, runtime_text
from graft.recipe import load_recipe
from graft.trial.containers import trials
from graft.trial.reference import check_image, find_base

NAMED = 5


def inspect(session: Session, image: str, *, arch: str | None, recipe: str | None, outside: bool) -> None:
    """Show the census of an image. arch: judge for it, by the waivers of `recipe` if that is given.

    Raises BadInput when there is no such image, recipe or architecture, GateFailed when a file has nothing for `arch`.
    """
    console = session.console
    check_image(image)
    if arch is not None:
        select(session.project.arches, arch)
    arches = list(session.project.arches)
    waivers = load_recipe(session.paths, session.project, recipe).waivers if recipe is not None else ()
    used = [w for w in waivers if w.check == "cuda-code" and w.arch in (None, arch)]
    with closing(ready_engine(session).client()) as client:
        base = find_base(client, image, console, offline=session.offline)
        with trials(client, console, "an image was inspected") as containers:
            program = read_program(session.paths.images)
            answer = inspect_image(containers, console, base.id, program, arches=arches, outside=outside)
    title, columns, rows = matrix(answer, arches, arch, used)
    if rows:
        console.table(f"GPU code in {image}; {title}" if title else f"GPU code in {image}", columns, rows)
        console.say(LEGEND)
    if answer.runtime:
        console.say(f"compiled at run time, not judged: {runtime_text(answer)}")
    red = answer.red(arch, used) if arch is not None else []
    data = {"image_id": base.id, "arch": arch, "red": red, **answer.model_dump(mode="json")}
    console.result(summary(answer, arch), data)
    if red:
        more = f" and {len(red) - NAMED} more" if len(red) > NAMED else ""
        raise GateFailed(
            f"{len(red)} files have no code that is sure to run on {arch}: {', '.join(red[:NAMED])}{more}",
            where=image,
            cure="build them for it; or waive them in a recipe, and name it with --recipe",
        )
