"""The lock's entry for the patches of one component: judged, applied by git, and proven by tree ids."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from graft.errors import BadInput, PatchMismatch
from graft.lock import PatchedComponent, PatchPin, TouchedFile
from graft.patching.git import Scratch, scratch
from graft.patching.hints import cure
from graft.patching.judge import judge
from graft.patching.model import Malformed, ParsedPatch, PatchVerdict, SourceTree
from graft.patching.parse import parse
from graft.patching.safety import check_paths, check_safety
from graft.patching.sources import MAX_FILE, folder_tree, touched_paths, unpack_sdist, wheel_tree
from graft.patching.temporary import temporary
from graft.patchset import Patch, PatchSet, Target, check_when

Source = SourceTree | Mapping[str, bytes] | Path


def lock_entry(
    component: str,
    source: Source,
    patches: Sequence[Patch],
    *,
    version: str = "",
    installed_path: Callable[[str], str | None] = lambda path: path,
    locked: PatchedComponent | None = None,
    bases: SourceTree | None = None,
) -> PatchedComponent:
    """Apply all patches to the pristine source, or none; what the lock keeps of it.

    source:         wheel: the touched files (`wheel_tree`); source: the unpacked folder, or the sdist itself.
    installed_path: where a file of the source lies below site-packages; None when it is not installed.
    locked:         the entry of the last lock, to find hunks that moved into another function.
    bases:          the touched files of the version that the last lock holds, to say more of what does not apply.
    Raises BadInput for a patch that must not reach an engine, PatchMismatch with every verdict when one does not
    apply, or when git's result is not the one that was judged.
    """
    target = one_target(component, patches)
    if version:
        check_when(component, patches, version)
    for patch in patches:
        check_safety(patch.data, patch.record, where=str(patch.path))
    parsed = [_parsed(patch) for patch in patches]
    with _unpacked(source) as folder:
        tree = _tree(source, folder, parsed)
        for patch, found in zip(patches, parsed, strict=True):
            if found is not None:
                check_paths(found, patch.record, tree.all_names, where=str(patch.path))
        symbols = locked_symbols(patches, [locked] if locked else [])
        verdicts = judge(tree, patches, symbols, bases)
        refuse(component, version, patches, verdicts)
        with _worktree(folder, tree) as work, scratch(work) as repository:
            return _applied(target, repository, patches, verdicts, installed_path)


def lock_component(
    found: PatchSet,
    ids: Sequence[str],
    file: Path,
    *,
    version: str = "",
    installed: Callable[[str], str | None] = lambda path: path,
    locked: PatchedComponent | None = None,
    bases: SourceTree | None = None,
) -> PatchedComponent:
    """`lock_entry` for a recipe's patches of one component, whose wheel or sdist is `file`."""
    patches = found.select(ids)
    target = one_target(found.component, patches)
    source = wheel_tree(file, touched_paths(patches)) if target == "wheel" else file
    return lock_entry(
        found.component, source, patches, version=version, installed_path=installed, locked=locked, bases=bases
    )


def locked_symbols(patches: Sequence[Patch], entries: Iterable[PatchedComponent]) -> dict[str, Mapping[str, str]]:
    """patch id -> the symbols that the lock saw it in, with fingerprints; only of patches that are still the same."""
    now = {patch.id: hashlib.sha256(patch.data).hexdigest() for patch in patches}
    pins = (pin for entry in entries for pin in entry.patches)
    return {pin.id: pin.symbols for pin in pins if now.get(pin.id) == pin.sha256}


def one_target(component: str, patches: Sequence[Patch]) -> Target:
    """The target that all patches of a component share. Raises BadInput."""
    targets = {patch.record.target for patch in patches}
    if len(targets) != 1:
        found = ", ".join(f"{patch.id}: {patch.record.target}" for patch in patches) or "no patch"
        raise BadInput(f"the patches of {component} need one target, found {found}", where=f"patches/{component}")
    return targets.pop()


def refuse(component: str, version: str, patches: Sequence[Patch], verdicts: Sequence[PatchVerdict]) -> None:
    """Raises PatchMismatch with a table of every patch and hunk unless all can be built."""
    wrong = [v for v in verdicts if not v.verdict.is_applicable]
    if not wrong:
        return
    files = {patch.id: str(patch.path) for patch in patches}
    against = f"{component} {version}".strip()
    raise PatchMismatch(
        f"{len(wrong)} of {len(verdicts)} patches cannot be applied to {against}; none was\n"
        + table(component, verdicts),
        where=files[wrong[0].id],
        cure="\n".join(dict.fromkeys(cure(v.verdict, f"{component}/{v.id}", files[v.id]) for v in wrong)),
    )


def table(component: str, verdicts: Sequence[PatchVerdict]) -> str:
    """Patch, file, hunk, verdict, place and reason, one line per hunk."""
    rows = [("patch", "file", "hunk", "verdict", "line", "why")]
    for verdict in verdicts:
        name = f"{component}/{verdict.id}"
        if not verdict.hunks:
            rows.append((name, "-", "-", verdict.verdict, "-", verdict.detail))
        for hunk in verdict.hunks:
            number = str(hunk.number) if hunk.number else "-"
            line = "-" if hunk.line is None else f"{hunk.line} ({hunk.offset:+d})" if hunk.offset else str(hunk.line)
            rows.append((name, hunk.path, number, hunk.verdict, line, hunk.detail))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[5]]).rstrip() for r in rows)


def context_files(entry: PatchedComponent, patches: Sequence[Patch]) -> dict[str, bytes]:
    """The build context that images/scripts/apply-patches.sh reads: name -> bytes.

    `series` holds the patch files in order; `touched` a line per file: blob id before all patches and after them
    (`-`: no file), and its path.
    """
    first: dict[str, str | None] = {}
    last: dict[str, str | None] = {}
    for pin in entry.patches:
        for path, touched in pin.files.items():
            first.setdefault(path, touched.before)
            last[path] = touched.after
    lines = [f"{first[path] or '-'} {last[path] or '-'} {path}\n" for path in sorted(first)]
    files = {patch.record.file: patch.data for patch in patches}
    return {
        "series": "".join(f"{patch.record.file}\n" for patch in patches).encode(),
        "touched": "".join(lines).encode(),
        **files,
    }


def check_files(component: str, entry: PatchedComponent, patches: Sequence[Patch]) -> None:
    """Raises PatchMismatch when the patch files are not the locked ones, in the locked order."""
    wanted = [(pin.id, pin.sha256) for pin in entry.patches]
    found = [(patch.id, hashlib.sha256(patch.data).hexdigest()) for patch in patches]
    if wanted == found:
        return
    if [i for i, _ in wanted] != [i for i, _ in found]:
        what = f"the lock holds {', '.join(i for i, _ in wanted)}; now it is {', '.join(i for i, _ in found) or 'none'}"
        raise PatchMismatch(f"the patches of {component} are not the locked ones: {what}", cure="run make lock")
    changed = next(p for p, a, b in zip(patches, wanted, found, strict=True) if a != b)
    raise PatchMismatch("the patch was changed after it was locked", where=str(changed.path), cure="run make lock")


def _parsed(patch: Patch) -> ParsedPatch | None:
    try:
        return parse(patch.data)
    except Malformed:
        return None


@contextmanager
def _unpacked(source: Source) -> Iterator[Path | None]:
    """The folder of a source, unpacked when it is an archive; None for plain files."""
    if not isinstance(source, Path):
        yield None
    elif source.is_dir():
        yield source
    else:
        with temporary("graft-source-", Path(tempfile.gettempdir())) as place:
            # Beside the marker of the folder, which is no part of the source.
            work = place / "work"
            work.mkdir()
            unpack_sdist(source, work)
            yield work


def _tree(source: Source, folder: Path | None, parsed: Sequence[ParsedPatch | None]) -> SourceTree:
    paths = {path for patch in parsed if patch is not None for path in patch.paths}
    if folder is not None:
        tree = folder_tree(folder, paths)
    elif isinstance(source, SourceTree):
        tree = source
    else:
        assert not isinstance(source, Path)
        tree = SourceTree(dict(source))
    for path, content in tree.files.items():
        if len(content) > MAX_FILE:
            raise BadInput(f"{path} is larger than {MAX_FILE // 1024 // 1024} MiB and cannot be patched")
    return tree


@contextmanager
def _worktree(folder: Path | None, tree: SourceTree) -> Iterator[Path]:
    """A folder with the pristine files: the unpacked source as it is, or only the touched files of a wheel."""
    if folder is not None:
        yield folder
        return
    with temporary("graft-files-", Path(tempfile.gettempdir())) as place:
        work = place / "work"
        work.mkdir()
        for path, content in tree.files.items():
            target = work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o755 if path in tree.executable else 0o644)
        yield work


def _applied(
    target: Target,
    repository: Scratch,
    patches: Sequence[Patch],
    verdicts: Sequence[PatchVerdict],
    installed_path: Callable[[str], str | None],
) -> PatchedComponent:
    pristine = result = repository.add_all()
    before = repository.blobs()
    pins: list[PatchPin] = []
    final: dict[str, bytes | None] = {}
    for patch, verdict in zip(patches, verdicts, strict=True):
        taken = repository.apply(patch.data)
        after, previous, result = repository.blobs(), result, repository.write_tree()
        if not taken or result == previous:
            raise PatchMismatch("git did not apply the patch that was judged applicable", where=str(patch.path))
        _agree(patch, verdict, before, after)
        pins.append(_pin(patch, verdict, before, after))
        final |= verdict.result
        before = after
    installed = {
        where: hashlib.sha256(content).hexdigest()
        for path, content in sorted(final.items())
        if content is not None and (where := installed_path(path)) is not None
    }
    return PatchedComponent(target=target, pristine=pristine, result=result, installed=installed, patches=tuple(pins))


Blobs = Mapping[str, tuple[str, str]]


def _agree(patch: Patch, verdict: PatchVerdict, before: Blobs, after: Blobs) -> None:
    """git must have made exactly the files that the judgement made, and touched no other."""
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    for path in sorted(changed | verdict.result.keys()):
        content = verdict.result.get(path)
        mode = "100755" if path in verdict.executable else "100644"
        expected = None if content is None else (mode, blob_id(content))
        if path not in verdict.result or after.get(path) != expected:
            raise PatchMismatch(f"git and the judgement disagree about {path}", where=str(patch.path))


def _pin(patch: Patch, verdict: PatchVerdict, before: Blobs, after: Blobs) -> PatchPin:
    def blob(blobs: Blobs, path: str) -> str | None:
        return blobs[path][1] if path in blobs else None

    paths = sorted(verdict.result)
    return PatchPin(
        id=patch.id,
        sha256=hashlib.sha256(patch.data).hexdigest(),
        files={path: TouchedFile(before=blob(before, path), after=blob(after, path)) for path in paths},
        offsets=tuple(hunk.offset for hunk in verdict.hunks),
        symbols=_symbols(verdict),
    )


def _symbols(verdict: PatchVerdict) -> dict[str, str]:
    found = {f"{h.path}::{h.symbol}": h.fingerprint for h in verdict.hunks if h.symbol and h.fingerprint}
    return {name: str(found[name]) for name in sorted(found)}


def blob_id(content: bytes) -> str:
    """git's id of a file's bytes."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
