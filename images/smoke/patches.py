"""Every patch is in what Python really imports, and its test needs it: green as installed, red on the pristine bytes.

Runs in a container that is thrown away: for the red half the original files are put over the patched ones; the exact
bytes, modes and times come back afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import CodeType

from lib import child, facts
from lib.facts import Facts, Patch
from lib.report import Report

# Without bytecode in the image and on two busy cores, an import of vLLM needed two minutes.
LOOKUP_SECONDS = 300.0
TEST_SECONDS = 300.0

# Asks the import system itself, in one process: the parents of a module may be imported for it, which is dear.
LOOKUP = """
import importlib.util, json, sys
origins = {}
for module in json.loads(sys.argv[1]):
    try:
        spec = importlib.util.find_spec(module)
        origins[module] = None if spec is None else spec.origin
    except Exception as problem:
        origins[module] = f"{type(problem).__name__}: {problem}"
print(json.dumps({"path": sys.path, "origins": origins}))
"""

# For the red half: bytecode of the pristine sources must not outlive them.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Lookup:
    """sys.path of a fresh interpreter, and module -> the file it would import."""

    path: tuple[str, ...]
    origins: Mapping[str, str | None]


@dataclass(frozen=True)
class Outcome:
    """One run of one patch test: how many tests ended how, and what to show of those that did not pass."""

    passed: int
    failed: int
    errors: int
    detail: str
    skipped: int = 0

    @property
    def green(self) -> bool:
        """All passed: a test that was skipped did not run."""
        return self.passed > 0 and not self.failed and not self.errors and not self.skipped

    @property
    def red(self) -> bool:
        """Failed as a test: an error proves nothing about the patch."""
        return self.failed > 0 and not self.errors and not self.skipped


def main() -> None:
    known = facts.load()
    report = Report("patches")
    check(known, report)
    report.finish()


def check(known: Facts, report: Report) -> None:
    files = {path: digest for patch in known.patches for path, digest in patch.files.items()}
    report.check("patches", bool(known.patches), f"{len(known.patches)} patches touch {len(files)} files")
    for path in filter(is_python, files):
        # Before anything is imported: an import may replace the bytecode that is to be judged.
        stale = stale_bytecode(known.site_packages / path)
        report.check(f"bytecode:{path}", not stale, "; ".join(stale) or "none that differs from the source")
    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)))) as pool:
        asked = pool.submit(look_up, [module_of(path) for path in files if is_python(path)])
        compiled = [patch for patch in known.patches if not any(map(is_python, patch.files))]
        green = {patch.id: pool.submit(run_test, known, patch) for patch in compiled}
        # The other tests wait for the lookup, whose imports leave the bytecode that they need.
        check_files(known, report, files, asked.result())
        rest = [patch for patch in known.patches if patch not in compiled]
        green |= {patch.id: pool.submit(run_test, known, patch) for patch in rest}
        for patch in known.patches:
            outcome = green[patch.id].result()
            report.check(f"changes:{name_of(patch)}", bool(patch.files), f"{len(patch.files)} files")
            report.check(f"green:{name_of(patch)}", outcome.green, f"with the patch: {outcome.detail}")
        if all((known.site_packages / path).is_file() for path in files):
            check_red(known, report, pool)


def check_red(known: Facts, report: Report, pool: ThreadPoolExecutor) -> None:
    """Every patch test fails on the pristine files, which are there only while the tests run."""
    with pristine_files(known) as pristine:
        runs = {patch.id: pool.submit(run_test, known, patch, NO_BYTECODE) for patch in known.patches}
        outcomes = {id: running.result() for id, running in runs.items()}
    report.check("restored", pristine.restored, "the patched files are back" if pristine.restored else "files differ")
    for patch in known.patches:
        outcome = outcomes[patch.id]
        hint = "; it passes without the patch too, so it proves nothing" if outcome.green else ""
        report.check(f"red:{name_of(patch)}", outcome.red, f"without the patch: {outcome.detail}{hint}")


def name_of(patch: Patch) -> str:
    return f"{patch.component}/{patch.id}"


def is_python(path: str) -> bool:
    """Whether `path` can be imported as a module; other files are found by their place in site-packages."""
    return path.endswith(".py") and all(part.isidentifier() for part in module_of(path).split("."))


def module_of(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def look_up(modules: Sequence[str]) -> Lookup:
    done = child.python(LOOKUP, json.dumps(modules), seconds=LOOKUP_SECONDS)
    if not done.ok:
        return Lookup((), dict.fromkeys(modules, done.why()))
    said = json.loads(done.stdout.splitlines()[-1])
    return Lookup(tuple(said["path"]), said["origins"])


def check_files(known: Facts, report: Report, files: Mapping[str, str], found: Lookup) -> None:
    """Each patched file has the locked bytes, is the one that is imported, and the only one on sys.path."""
    report.check("sys.path", bool(found.path), f"{len(found.path)} entries")
    for path, digest in files.items():
        own = known.site_packages / path
        actual = sha256(own)
        report.check(f"hash:{path}", actual == digest, f"sha256 is {actual}, the lock says {digest}")
        if is_python(path):
            origin = found.origins[module_of(path)]
            imported = origin is not None and same_file(Path(origin), own)
            report.check(f"imported:{path}", imported, f"Python imports {module_of(path)} from {origin}")
        copies = [str(Path(folder, path)) for folder in found.path if is_copy(Path(folder, path), own)]
        report.check(f"single:{path}", not copies, f"also at {', '.join(copies)}" if copies else "one copy on sys.path")


def sha256(file: Path) -> str | None:
    """The file's sha256, None where there is no file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def is_copy(file: Path, own: Path) -> bool:
    return file.is_file() and not same_file(file, own)


def cached_bytecode(source: Path) -> list[Path]:
    """Every cached bytecode file of a source, of any interpreter and optimisation."""
    return sorted(source.parent.glob(f"__pycache__/{source.stem}.*.pyc"))


def stale_bytecode(source: Path) -> list[str]:
    """Cached bytecode that this interpreter could take for `source` and that is not what `source` compiles to.

    Its recorded time and size prove nothing: both can match although the source was replaced.
    """
    if not source.is_file():
        return ["there is no source"]
    stale = []
    for cached in cached_bytecode(source):
        raw = cached.read_bytes()
        if raw[:4] != importlib.util.MAGIC_NUMBER:
            continue
        level = next((int(name[4:]) for name in cached.suffixes if name.startswith(".opt-")), 0)
        fresh = compile(source.read_bytes(), str(source), "exec", dont_inherit=True, optimize=level)
        if load_code(raw[16:]) != fresh:
            stale.append(f"{cached.name} was made from other source")
    return stale


def load_code(raw: bytes) -> CodeType | None:
    with contextlib.suppress(ValueError, EOFError, TypeError):
        code = marshal.loads(raw)
        return code if isinstance(code, CodeType) else None
    return None


def run_test(known: Facts, patch: Patch, env: Mapping[str, str] | None = None) -> Outcome:
    """One patch test in a process of its own."""
    runner = Path(__file__).parent / "lib" / "patchtest.py"
    argv = [sys.executable, "-P", str(runner), str(known.root / patch.test)]
    done = child.run(argv, seconds=TEST_SECONDS, env={"GRAFT_ARCH_NVCC": known.nvcc_arch, **(env or {})})
    try:
        tests = json.loads(done.stdout.splitlines()[-1])["tests"]
    except (IndexError, ValueError, KeyError):
        return Outcome(0, 0, 1, f"no result; {done.why()}")
    by = {verdict: [t for t in tests if t["verdict"] == verdict] for verdict in ("pass", "fail", "error", "skip")}
    counts = f"{len(by['pass'])} passed, {len(by['fail'])} failed, {len(by['error'])} errors"
    counts += f", {len(by['skip'])} skipped" if by["skip"] else ""
    shown = "".join(f"; {t['name']}: {last_line(t['detail'])}" for t in [*by["error"], *by["fail"], *by["skip"]])
    return Outcome(len(by["pass"]), len(by["fail"]), len(by["error"]), counts + shown, len(by["skip"]))


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


@dataclass
class Pristine:
    """`restored` is true once every file is back as it was."""

    restored: bool = False


@contextlib.contextmanager
def pristine_files(known: Facts) -> Iterator[Pristine]:
    """Inside, every patched file has its original bytes (one that a patch added is gone), without old bytecode."""
    state = Pristine()
    targets = {known.site_packages / path: digest for patch in known.patches for path, digest in patch.files.items()}
    before = {target: sha256(target) for target in targets}
    with tempfile.TemporaryDirectory() as backup, contextlib.ExitStack() as undo:
        # Undone in reverse: the sources come back first, then what was cached for them.
        for number, target in enumerate(targets):
            for cached in cached_bytecode(target):
                undo.enter_context(moved_away(cached, Path(backup, f"{number}-{cached.name}")))
        for patch in known.patches:
            for path in patch.files:
                original = known.root / "pristine" / patch.component / path
                undo.enter_context(replaced(known.site_packages / path, original))
        yield state
    state.restored = {target: sha256(target) for target in targets} == before


@contextlib.contextmanager
def moved_away(file: Path, shelter: Path) -> Iterator[None]:
    shutil.move(file, shelter)
    try:
        yield
    finally:
        shutil.move(shelter, file)


@contextlib.contextmanager
def replaced(target: Path, original: Path) -> Iterator[None]:
    """`target` has the bytes of `original` (or is gone where there is none) and gets its own back, as they were.

    Files are exchanged, never written to: an installed file may be a hard link into a cache.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".graft-") as folder:
        kept = Path(folder, target.name)
        target.rename(kept)
        try:
            if original.is_file():
                shutil.copyfile(original, target)
                target.chmod(kept.stat().st_mode & 0o7777)
            yield
        finally:
            kept.replace(target)


if __name__ == "__main__":
    main()
