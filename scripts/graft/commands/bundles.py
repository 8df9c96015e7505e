"""`graft bundle export` and `import`: what a build or a pull needs, in one file, for machines without network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from graft import bundle
from graft.bundle import CarriedImage, Index, Member
from graft.commands.image import finished
from graft.commands.programs import ready_engine, wanted_tools
from graft.commands.session import Session, make_plan, wanted
from graft.commands.trees import bring_trees, is_tree
from graft.console import size
from graft.errors import BadInput, FetchFailed, GateFailed
from graft.hashes import file_sha256
from graft.locks import alone
from graft.plan import Plan
from graft.store import mark_checked

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.trial.saved import Saved

#: What a bundle carries: what a build needs, the image that is built, or both.
Contents = Literal["build", "image", "all"]
INPUTS = ("build.yaml", "recipes", "patches", "images")


def export(session: Session, target: Path, contents: Contents) -> None:
    """Write the bundle of a recipe for one architecture; what the store lacks is fetched first.

    Raises FetchFailed, GateFailed (the image is not built, or has not passed), BadInput (no such folder, no room).
    """
    from graft.fetch import fetch

    # Before gigabytes are fetched for it.
    if not target.absolute().parent.is_dir():
        raise BadInput("there is no such folder", where=str(target.parent), cure="make it, or name another file")
    if target.is_dir():
        raise BadInput("this is a folder", where=str(target), cure="name the file to write")
    planned = make_plan(session)
    files = wanted_tools(session) + (wanted(session, planned) if contents != "image" else [])
    trees = {} if contents == "image" else {b.name: b.source for b in (*planned.sources, *planned.builds)}
    trees = {name: pin for name, pin in trees.items() if is_tree(pin)}
    bring_trees(session, planned.recipe, trees)
    fetch(session.store, files, session.console, offline=session.offline)
    sources: dict[str, Path] = {
        f"store/{item.pin.sha256}/{item.file_name}": session.store.path(item.pin) for item in files
    }
    sources |= {f"store/{pin.sha256}/{pin.file}": session.store.path(pin) for pin in trees.values()}
    sources |= _project_files(session, planned)
    listed = [
        Member(path=path, size=place.stat().st_size, sha256=_sha256_of(path, place), executable=_is_script(path, place))
        for path, place in sorted(sources.items())
    ]
    if contents == "build":
        _write(session, target, planned, listed, sources, None)
        return
    with closing(ready_engine(session).client()) as client:
        image_id = finished(session, planned, client)
        if image_id is None:
            cure = f"make image RECIPE={planned.recipe.recipe} ARCH={planned.arch.name}"
            raise GateFailed(f"{planned.tag} is not built, or has not passed its gate", cure=cure)
        receipts = session.paths.receipts / image_id.removeprefix("sha256:")[:12]
        more = {f"receipts/{receipts.name}/{file.name}": file for file in sorted(receipts.iterdir())}
        listed += [Member(path=p, size=f.stat().st_size, sha256=file_sha256(f)) for p, f in more.items()]
        from graft.trial.saved import list_saved

        with session.console.step("read the image"):
            saved = list_saved(client, image_id)
        _write(session, target, planned, listed, {**sources, **more}, saved)


def load(session: Session, source: Path, digest: str | None) -> None:
    """Check all of a bundle, then put its files where a build, or `docker run`, finds them.

    digest: of the list of contents, as the export said it. Raises FetchFailed when the bundle is not whole, BadInput
    when it is none, or was made of another project than this one; then nothing was taken.
    """
    console = session.console
    if not source.is_file():
        raise BadInput("there is no such bundle", where=str(source), cure="name what `graft bundle export` wrote")
    index = bundle.read_index(source)
    if digest is not None and digest != index.digest:
        raise FetchFailed(f"this is bundle {index.digest}, not {digest}", where=str(source), cure="copy it again")
    _check_project(session, index, source)
    with console.step(f"check {len(index.members)} files"), console.bytes_progress("check", index.size) as meter:
        bundle.verify(source, meter.add)
    session.paths.state.mkdir(exist_ok=True)
    lock = alone(session.paths.state / "bundle.lock", "another import of a bundle", console.say)
    with lock, console.step("take them"), console.bytes_progress("take", index.size) as meter:
        taken = _take(session, source, index, meter.add)
    result = index.image.references[0] if index.image is not None else f"{index.recipe} for {index.arch}"
    console.say(f"{taken} new files; the key of what is built from them is {index.key[:12]}")
    data = {"recipe": index.recipe, "arch": index.arch, "key": index.key, "digest": index.digest, "new": taken}
    console.result(result, {**data, "image": index.image.model_dump(mode="json") if index.image else None})


def _write(
    session: Session,
    target: Path,
    planned: Plan,
    listed: list[Member],
    sources: Mapping[str, Path],
    saved: Saved | None,
) -> None:
    references = (planned.tag, *planned.channels)
    image = CarriedImage(id=saved.id, layers=saved.layers, references=references) if saved is not None else None
    made = [Member(path=f"image/{b.name}", size=b.size, sha256=b.sha256) for b in saved.blobs] if saved else []
    index = Index(
        format=bundle.FORMAT,
        recipe=planned.recipe.recipe,
        arch=planned.arch.name,
        key=planned.image.key,
        lock=planned.lock.digest,
        image=image,
        members=(*listed, *made),
    )
    blobs = saved.open() if saved is not None else None

    def chunks(member: Member) -> Iterator[bytes]:
        kind, rest = member.parts
        if kind != "image":
            return bundle.file_chunks(sources[member.path])
        assert blobs is not None
        return blobs.chunks(rest)

    console = session.console
    title = f"write {len(index.members)} files, {size(index.size)}"
    with console.step(title), console.bytes_progress("bundle", index.size) as meter:
        bundle.write(target.absolute(), index, chunks, meter.add)
    console.say(f"to be sure of the copy: graft bundle import {target.name} --digest {index.digest}")
    data = {"file": str(target), "digest": index.digest, "bytes": index.size, "key": index.key}
    console.result(str(target), {**data, "members": len(index.members), "image": image.id if image else None})


def _sha256_of(path: str, place: Path) -> str:
    """Files of the store were checked when they came, and are again when they are written."""
    kind, _, rest = path.partition("/")
    return rest.partition("/")[0] if kind == "store" else file_sha256(place)


def _is_script(path: str, place: Path) -> bool:
    """Whether a file of the project is started by its name: git knows that of it too."""
    return path.startswith("project/") and bool(place.stat().st_mode & 0o100)


def _project_files(session: Session, planned: Plan) -> dict[str, Path]:
    """What people wrote that decides the key, or what the gate runs."""
    paths = session.paths
    recipe = planned.recipe.recipe
    chosen = [paths.build_yaml, paths.recipe(recipe), paths.lock(recipe), paths.requirements(recipe), paths.tools_lock]
    for component in planned.patched():
        chosen += [p for p in sorted((paths.patches / component).rglob("*")) if p.suffix in (".patch", ".yaml", ".py")]
    chosen += [p for p in sorted(paths.images.rglob("*")) if p.suffix in (".j2", ".sh", ".py")]
    return {f"project/{path.relative_to(paths.root)}": path for path in chosen if path.is_file()}


def _check_project(session: Session, index: Index, source: Path) -> None:
    """Raises BadInput when files of this project are other ones than those that the bundle was made with."""
    root = session.paths.root
    other = []
    for member in index.members:
        kind, rest = member.parts
        place = root / rest
        if kind == "project" and place.exists() and (not place.is_file() or file_sha256(place) != member.sha256):
            other.append(rest)
    if other:
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        raise BadInput(
            f"the bundle was made with another {other[0]}{more}: what is built from it would not be the same",
            where=str(source),
            cure="check out the revision that it was made with; nothing was taken",
        )


def _take(session: Session, source: Path, index: Index, on_bytes: bundle.OnBytes) -> int:
    """Put each file in its place, whole; returns how many were new. The image comes last."""
    paths = session.paths
    places = {"store": paths.store, "project": paths.root, "receipts": paths.receipts}
    new = 0
    carried = bundle.members(source)
    for member, chunks in carried:
        kind, rest = member.parts
        if kind == "image":
            _load_image(session, source, index, itertools.chain([(member, chunks)], carried), on_bytes)
            break
        place = places[kind] / rest
        if place.is_file() and place.stat().st_size == member.size and file_sha256(place) == member.sha256:
            for chunk in chunks:
                on_bytes(len(chunk))
            continue
        new += 1
        _put(place, chunks, on_bytes, checked=kind == "store", executable=member.executable)
    return new


def _put(place: Path, chunks: Iterator[bytes], on_bytes: bundle.OnBytes, *, checked: bool, executable: bool) -> None:
    """A file, whole or not at all: it gets its name when its hash is known."""
    place.parent.mkdir(parents=True, exist_ok=True)
    # One name, so that what a killed import left is written over by the next one; they wait for each other.
    part = place.with_name(f".{place.name}.bundle")
    try:
        with part.open("wb") as sink:
            for chunk in chunks:
                sink.write(chunk)
                on_bytes(len(chunk))
        part.chmod(0o755 if executable else 0o644)
        if checked:
            mark_checked(part)
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _load_image(
    session: Session,
    source: Path,
    index: Index,
    carried: Iterator[tuple[Member, Iterator[bytes]]],
    on_bytes: bundle.OnBytes,
) -> None:
    """Load the image and name it: the reference that never moves first, and only when nothing else has it."""
    from graft.trial.saved import load_saved

    image = index.image
    if image is None:
        raise BadInput("its list of contents has blobs of an image and no image", where=str(source))
    with closing(ready_engine(session).client()) as client:
        immutable = image.references[0]
        there = _id_of(client, immutable)
        if there not in (None, image.id):
            raise BadInput(
                f"{immutable} is another image here, {str(there)[:19]}, and a tag of a key never moves",
                where=str(source),
                cure=f"remove it when it is not needed: docker image rm {immutable}",
            )
        blobs = ((member.parts[1], member.size, _counted(chunks, on_bytes)) for member, chunks in carried)
        load_saved(client, image.id, image.layers, blobs)
        for reference in image.references:
            repository, _, name = reference.rpartition(":")
            client.images.get(image.id).tag(repository, tag=name)


def _counted(chunks: Iterator[bytes], on_bytes: bundle.OnBytes) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        on_bytes(len(chunk))


def _id_of(client: DockerClient, reference: str) -> str | None:
    from docker.errors import ImageNotFound

    try:
        return str(client.images.get(reference).id)
    except ImageNotFound:
        return None
