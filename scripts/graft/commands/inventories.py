"""`graft diff` and `graft size`: what recipes, locks and images hold, named as people name them."""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graft import proc
from graft.commands.programs import ready_engine
from graft.commands.session import Session, any_plan, open_session
from graft.errors import BadInput, GraftError
from graft.hashes import digest_of
from graft.inventory import Inventory, compare
from graft.inventory.planned import of_lock, of_plan
from graft.inventory.text import COLUMNS, markdown, rows, size_rows, summary
from graft.lock import FORMAT, Lock, load_lock, plain
from graft.patchset import load_patchset
from graft.paths import Paths
from graft.recipe import RECIPE_NAME, every_recipe
from graft.render import render
from graft.yamlio import parse, validate

if TYPE_CHECKING:
    from graft.inventory.compare import Difference

#: What a recipe or lock of another git revision is planned from.
INPUTS = ("build.yaml", "recipes", "patches", "images")
REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./~^@{}+-]{0,200}")
GIT_SECONDS = 60.0
MAX_ROWS = 40


def diff(session: Session, before: str, after: str, *, report: str, every: bool) -> None:
    """What B holds that A does not, and the other way round. report: `table` or `md`; every: no row is left out."""
    # Both, before the first is looked at: that may take an engine.
    for where, what in (("A", before), ("B", after)):
        check_name(session, what, where)
    found = compare(inventory(session, before), inventory(session, after))
    if report == "md":
        session.console.result(markdown(found, _titles(session)), found.as_dict())
        return
    _show(session, found, every)
    counts = [f"{len(s.changes)} {s.title}" for s in found.sections if s.changes]
    session.console.result(", ".join(counts) or "nothing that can be compared differs", found.as_dict())


def size(session: Session, what: str | None, *, every: bool) -> None:
    """Bytes of each component, package and layer of a recipe, a lock or an image."""
    from graft.console import size as text

    check_name(session, what or session.recipe, "WHAT")
    found = inventory(session, what or session.recipe)
    columns = ("component", "kind", "package", "version", "size", "part")
    meaning = "in the image" if found.size_kind == "installed" else "to download"
    shown = size_rows(found)
    session.console.table(f"{found.name}: packages, bytes {meaning}", columns, shown if every else shown[:MAX_ROWS])
    if len(shown) > MAX_ROWS and not every:
        session.console.say(f"and {len(shown) - MAX_ROWS} smaller ones; --all shows them")
    if found.layers is not None:
        layers = [(layer.step, layer.digest[7:19], text(layer.size)) for layer in found.layers]
        session.console.table(f"{found.name}: layers", ("step", "digest", "size"), layers)
    for note in found.notes:
        session.console.say(f"note: {note}")
    total = found.size
    data = {
        **{"name": found.name, "kind": found.kind, "sizes_are": found.size_kind, "bytes": total},
        "components": found.component_sizes(),
        "python": {name: package.size for name, package in (found.python or {}).items()},
        "debian": {name: package.size for name, package in (found.debian or {}).items()},
        "layers": [{"step": la.step, "digest": la.digest, "bytes": la.size} for la in found.layers or ()],
    }
    session.console.result(f"{text(total)} {meaning}" if total is not None else "size not known", data)


def check_name(session: Session, what: str, where: str) -> None:
    """Whether it can be what `inventory` looks for; reads no file. Raises BadInput."""
    from graft.trial.reference import check_image

    name = what.partition("@")[0]
    if what.endswith(".lock.yaml") or _is_recipe(session, name):
        return
    cure = "a recipe (NAME or NAME@REVISION), a lock (its .lock.yaml), or an image (name:tag, name@sha256:..., an id)"
    if not what:
        raise BadInput("nothing is named", where=where, cure=cure)
    try:
        check_image(what, where)
    except BadInput:
        close = difflib.get_close_matches(name, every_recipe(session.paths)[0], n=1)
        raise BadInput(
            f"{what!r} is no recipe, lock or image", where=where, cure=f"did you mean {close[0]}?" if close else cure
        ) from None


def inventory(session: Session, what: str) -> Inventory:
    """What a recipe (`NAME`, `NAME@REVISION`), a lock (a path), or an image (a reference or id) holds.

    A recipe's name wins over an image's; `name:latest` is the image. A reference that names a registry is asked for
    there, without pulling; offline it is the image on the engine. Raises RegistryFailed,
    BadInput, LockStale, EngineMissing.
    """
    if what.endswith(".lock.yaml"):
        return _of_lock(session, what)
    name, at, revision = what.partition("@")
    if _is_recipe(session, name) and at and not revision.startswith("sha256:"):
        return replace(_at_revision(session, name, revision), name=what)
    if not at and _is_recipe(session, name):
        return _of_recipe(session, what)
    if _names_registry(what) and not session.offline:
        return _of_registry(session, what)
    return _of_image(session, what)


def _is_recipe(session: Session, name: str) -> bool:
    inner = name.rpartition("/")[2]
    # One that was removed since is a recipe still, of its revision.
    return RECIPE_NAME.fullmatch(inner) is not None and (
        session.paths.recipe(inner).is_file() or session.paths.lock(inner).is_file()
    )


def _of_recipe(session: Session, name: str) -> Inventory:
    chosen = open_session(session.paths, session.console, recipe=name, arch=session.arch)
    plan = any_plan(chosen)
    return of_plan(name, plan, render(session.paths, plan).text)


def _of_lock(session: Session, what: str) -> Inventory:
    path = Path(what)
    if not path.is_file():
        raise BadInput("there is no such lock", where=what, cure="name a recipe, a lock file, or an image")
    name = path.name.removesuffix(".lock.yaml")
    if RECIPE_NAME.fullmatch(name) and path.resolve() == session.paths.lock(name).resolve():
        return of_lock(what, load_lock(session.paths, name), session.arch)
    document = parse(path.read_bytes(), path)
    found = document.data.get("lock") if isinstance(document.data, dict) else None
    if type(found) is not int:
        raise BadInput("this is no lock of a recipe", where=what, cure="name one that `make lock` wrote")
    if found != FORMAT:
        raise BadInput(
            f"the lock has format {found}, this Graft reads {FORMAT}", where=what, cure="use the Graft that wrote it"
        )
    lock = validate(document, Lock)
    if digest_of(plain(lock)) != lock.digest:
        raise BadInput(
            "the lock was edited by hand: its digest does not fit",
            where=what,
            cure="take the file from where it was made",
        )
    return of_lock(what, lock, session.arch)


def _at_revision(session: Session, name: str, revision: str) -> Inventory:
    with _checked_out(session.paths, revision, f"{name}@{revision}") as paths:
        try:
            chosen = open_session(paths, session.console, recipe=name, arch=session.arch)
            plan = any_plan(chosen)
            return of_plan(name, plan, render(paths, plan).text)
        except GraftError as problem:
            # The folder is gone when this is read, and what is committed is not to be edited.
            problem.where = f"{name}@{revision}: {paths.relative(Path(problem.where or ''))}"
            problem.cure = f"name a revision that this Graft reads, or use the Graft of {revision}"
            raise


@contextmanager
def _checked_out(paths: Paths, revision: str, where: str) -> Iterator[Paths]:
    """The project's inputs of a git revision, in a folder that is removed. Raises BadInput."""
    if not REVISION.fullmatch(revision):
        raise BadInput(f"{revision!r} is not a git revision", where=where, cure="a commit, a tag or a branch")
    git = ("git", "-C", paths.root)
    asked = (*git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    found = proc.run(asked, timeout=GIT_SECONDS, error=BadInput, what="git rev-parse", check=False)
    if found.rc != 0:
        raise BadInput(f"git knows no revision {revision}", where=where, cure="git log shows what there is")
    with tempfile.TemporaryDirectory(prefix="graft-revision-") as folder:
        tar = Path(folder) / "inputs.tar"
        root = Path(folder) / "project"
        root.mkdir()
        proc.run(
            (*git, "archive", "--format=tar", f"--output={tar}", found.stdout.strip(), "--", *INPUTS),
            timeout=GIT_SECONDS,
            error=BadInput,
            what=f"{where}: the project's inputs of that revision",
        )
        proc.run(("tar", "-xf", tar, "-C", root), timeout=GIT_SECONDS, error=BadInput, what=f"unpacking {where}")
        yield Paths(root)


def _of_registry(session: Session, what: str) -> Inventory:
    from graft.commands.registry import reference_of, registry_of
    from graft.inventory.published import of_published

    reference = reference_of(session, what, None)
    with session.console.step(f"ask for {what}"):
        return of_published(what, registry_of(reference.repository), reference)


def _names_registry(what: str) -> bool:
    """Whether it can only be an image of a registry: its first part is a host."""
    from graft.trial.reference import REFERENCE, parse_reference

    return REFERENCE.fullmatch(what) is not None and parse_reference(what, "IMAGE").names_registry


def _of_image(session: Session, what: str) -> Inventory:
    from graft.inventory.imaged import of_image
    from graft.trial.reference import find_base

    paths = session.paths
    probe = {
        "inventory.py": (paths.scripts / "inventory.py").read_bytes(),
        "fatbin.py": (paths.smoke / "lib" / "fatbin.py").read_bytes(),
    }
    with closing(ready_engine(session).client()) as client:
        image = find_base(client, what, session.console, offline=session.offline)
        with session.console.step(f"look into {what}"):
            return of_image(client, session.console, what, image, session.project, probe, paths.receipts)


def _titles(session: Session) -> dict[str, str]:
    """component/id -> title of every patch that the project has."""
    folders = sorted(path.parent for path in session.paths.patches.glob("*/series.yaml"))
    sets = [load_patchset(folder) for folder in folders]
    return {f"{found.component}/{patch.id}": patch.record.title for found in sets for patch in found.patches}


def _show(session: Session, found: Difference, every: bool) -> None:
    console = session.console
    for section in found.sections:
        shown = rows(section)
        if not shown:
            continue
        title = f"{section.title}: {len(shown)} differ, {section.same} are the same"
        console.table(title, COLUMNS, shown if every else shown[:MAX_ROWS])
        if len(shown) > MAX_ROWS and not every:
            console.say(f"and {len(shown) - MAX_ROWS} more; --all shows them")
    for line in summary(found):
        console.say(line)
