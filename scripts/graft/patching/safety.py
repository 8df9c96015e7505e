"""What is refused before any engine sees a patch: paths, modes, kinds and sizes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator

from graft.errors import BadInput
from graft.patching.model import FileDiff, Malformed, ParsedPatch
from graft.patching.parse import parse
from graft.patchset import PatchRecord

MAX_BYTES = 16 * 1024 * 1024
MAX_HUNKS = 2000
MAX_PATH = 1024
MODES = frozenset({"100644", "100755"})
HTML = re.compile(rb"^(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|head|body|\?xml)", re.I)
BUILD_FILES = frozenset(
    {
        "setup.py", "setup.cfg", "pyproject.toml", "build_backend.py", "build_utils.py", "conftest.py", "tox.ini",
        "noxfile.py", "makefile", "cmakelists.txt", "meson.build", "sitecustomize.py", "usercustomize.py",
        "jenkinsfile", "dockerfile", ".gitattributes", ".gitmodules", ".gitlab-ci.yml", ".pre-commit-config.yaml",
    }
)  # fmt: skip
BUILD_SUFFIXES = (".cmake", ".mk")
CI_FOLDERS = frozenset({".github", ".gitlab", ".circleci", ".buildkite", ".ci"})
COMPILED_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hxx", ".pyx", ".rs")
COMPILED = (".so", ".pyd", ".dylib", ".dll", ".a", ".o", ".pyc")


def check_safety(data: bytes, record: PatchRecord, *, where: str | None = None) -> None:
    """Raises BadInput for a patch that must not reach an engine.

    A patch that cannot be parsed is not refused here: it never reaches an engine, its verdict is `malformed`.
    """
    at = where or record.file
    if len(data) > MAX_BYTES:
        raise BadInput(f"the patch is larger than {MAX_BYTES // 1024 // 1024} MiB", where=at, cure="split it")
    if HTML.match(data[:1024]):
        raise BadInput("the file is HTML, not a diff", where=at, cure="save the raw diff: add .diff to the address")
    try:
        patch = parse(data)
    except Malformed:
        return
    if sum(len(diff.hunks) for diff in patch.files) > MAX_HUNKS:
        raise BadInput(f"the patch has more than {MAX_HUNKS} hunks", where=at, cure="split it")
    for diff in patch.files:
        problem = next(_problems(diff, record), None)
        if problem is not None:
            raise BadInput(problem, where=f"{at}:{diff.at_line}")
    _check_case(patch.paths, at)


def check_paths(patch: ParsedPatch, record: PatchRecord, names: Collection[str], *, where: str | None = None) -> None:
    """Raises BadInput for what only the component's own file names show.

    names: every path of the component. Outside of it, differing from an existing file in case only, or (wheel)
    shadowed by a compiled file of the same module.
    """
    at = where or record.file
    roots = {name.partition("/")[0] for name in names if "/" in name}
    known = set(names)
    folded = {_fold(name): name for name in names}
    for diff in patch.files:
        spot = f"{at}:{diff.at_line}"
        for path in diff.paths:
            root, slash, _ = path.partition("/")
            if path not in known and slash and root not in roots:
                raise BadInput(
                    f"{path} lies outside the component (its folders: {', '.join(sorted(roots)[:8])})",
                    where=spot,
                    cure="paths are relative to the source's root, or to site-packages for a wheel",
                )
            twin = folded.get(_fold(path))
            if twin is not None and twin != path and path not in known:
                raise BadInput(f"{path} and the existing {twin} differ only in case", where=spot)
            if record.target == "wheel":
                _check_twins(path, known, spot)


def _problems(diff: FileDiff, record: PatchRecord) -> Iterator[str]:
    for path in diff.paths:
        yield from _path_problems(path)
    for mode in (diff.old_mode, diff.new_mode):
        if mode == "120000":
            yield f"{diff.path} is a symbolic link"
        elif mode == "160000":
            yield f"{diff.path} is a submodule"
        elif mode is not None and mode not in MODES:
            yield f"{diff.path} has mode {mode}; only 100644 and 100755 are allowed"
    if diff.binary and "binary" not in record.allows:
        yield f"{diff.path} is a binary change; the record must say `allows: [binary]`"
    if "build-files" not in record.allows:
        for path in filter(is_build_file, diff.paths):
            yield f"{path} decides how things are built or run; the record must say `allows: [build-files]`"
    if record.target == "wheel":
        yield from _wheel_problems(diff)


def _path_problems(path: str) -> Iterator[str]:
    shown = ascii(path)
    if path.startswith(("/", "~")) or re.match(r"^[A-Za-z]:", path):
        yield f"{shown} is an absolute path"
    if "\\" in path:
        yield f"{shown} holds a backslash"
    if any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") for c in path):
        yield f"{shown} holds a control character"
    if len(path.encode()) > MAX_PATH:
        yield f"{shown[:80]}... is longer than {MAX_PATH} bytes"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            yield f"{shown} holds an empty part, `.` or `..`"
        # Names that Windows and macOS resolve to .git are as good as .git.
        if part.rstrip(" .").casefold() in (".git", "git~1"):
            yield f"{shown} lies in a .git folder"


def _wheel_problems(diff: FileDiff) -> Iterator[str]:
    if diff.is_deleted or diff.is_rename:
        yield f"{diff.path}: an overlay can change or add a file of an installed wheel, not remove it"
    if diff.changes_mode or (diff.is_new and diff.new_mode == "100755"):
        yield f"{diff.path}: modes of an installed wheel's files cannot be patched"
    for path in diff.paths:
        name = path.rpartition("/")[2].casefold()
        root = path.partition("/")[0].casefold()
        if root.endswith((".dist-info", ".data", ".egg-info")):
            yield f"{path} is metadata of the wheel (METADATA, RECORD, entry points); it cannot be patched"
        if name.endswith(".pth"):
            yield f"{path}: .pth files run at start and cannot be patched"
        if name.endswith(COMPILED):
            yield f"{path} is a compiled file; patch its source, in a component that is built from source"
        if name.endswith(COMPILED_SOURCES):
            yield f"{path} is compiled into the wheel already; the component must be built from source (target: source)"


def is_build_file(path: str) -> bool:
    """Build scripts, CI and files that Python or pytest runs by themselves."""
    parts = path.casefold().split("/")
    return (
        parts[-1] in BUILD_FILES
        or parts[-1].endswith((*BUILD_SUFFIXES, ".pth"))
        or any(part in CI_FOLDERS for part in parts[:-1])
    )


def _check_twins(path: str, known: Collection[str], where: str) -> None:
    """Python prefers x.cpython-311-*.so over x.py: a patch to x.py would change nothing."""
    if not path.endswith(".py"):
        return
    stem = path.removesuffix(".py")
    for name in known:
        if name.startswith(f"{stem}.") and name.endswith((".so", ".pyd")):
            raise BadInput(f"{path} has a compiled twin, {name}, which Python imports instead of it", where=where)


def _check_case(paths: Collection[str], at: str) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(_fold(path), path)
        if other != path:
            raise BadInput(f"{path} and {other} differ only in case or in Unicode form", where=at)


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
