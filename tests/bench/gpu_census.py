"""The census of GPU code against cuobjdump: the same entries in every file, and how long both take.

`census` reads headers, `cuobjdump` decompresses; so that it also sees what it does not know of, code hidden in data is
packed into a fatbin for it. Run by `make bench` over the files of the image, or by hand over any folder:
`PYTHONPATH=scripts .venv/bin/python tests/bench/gpu_census.py FOLDER [--cuobjdump PROGRAM]`.
"""

from __future__ import annotations

import argparse
import io
import json
import mmap
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "images" / "smoke"))

from lib import census, fatbin, hidden  # noqa: E402

from graft import proc  # noqa: E402
from graft.resolve import uv_program  # noqa: E402

if TYPE_CHECKING:
    from docker import DockerClient

VERSION = "13.5.37"
SHA256 = {"x86_64": "38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58"}
#: What cuobjdump calls a piece of code, and ours.
KINDS = {"Fatbin elf code:": "cubin", "Fatbin ptx code:": "ptx", "Fatbin nvvm code:": "lto"}
#: It refuses bare cubins for older devices.
OLDEST = 50
ARCH = re.compile(r"arch = sm_(\d+[af]?)$")
BARE = re.compile(r"ELF file +\d+: .*\.sm_(\d+a?)\.cubin$")

DIFFERENT = 3

Entries = Counter[tuple[str, str]]


@dataclass(frozen=True)
class Agreement:
    """Seconds for all files. entries, hidden: pieces of code compared; differences: file -> what only one has seen."""

    files: int
    with_code: int
    entries: int
    hidden: int
    seconds: float
    cuobjdump_seconds: float
    differences: dict[str, list[str]]


def measure(folder: Path, program: Path) -> Agreement:
    """Compare every ELF file, archive, cubin and fatbin below a folder. Raises OSError, FatbinError."""
    started = time.monotonic()
    found = census.take(folder)
    seconds = time.monotonic() - started
    ours = {holding.path: seen_by_census(holding) for holding in found.holdings}
    files = list(code_files(folder))
    started = time.monotonic()
    theirs = {path: seen_by_cuobjdump(program, folder / path.lstrip("/")) for path in files}
    cuobjdump_seconds = time.monotonic() - started
    differences = {path: differing(ours.get(path, Counter()), theirs[path]) for path in files}
    hidden_entries = 0
    for holding in found.holdings:
        mine, its = hidden_in(folder / holding.path.lstrip("/"), program)
        hidden_entries += sum(mine.values())
        differences[f"{holding.path} (hidden)"] = differing(mine, its)
    return Agreement(
        files=len(files),
        with_code=sum(bool(seen) for seen in theirs.values()),
        entries=sum(sum(seen.values()) for seen in theirs.values()),
        hidden=hidden_entries,
        seconds=seconds,
        cuobjdump_seconds=cuobjdump_seconds,
        differences={path: what for path, what in differences.items() if what},
    )


def measure_image(client: DockerClient, image_id: str, program: Path, folder: Path) -> Agreement:
    """The same over the files of an image, which are unpacked below `folder` and removed again."""
    container = client.api.create_container(image_id, ["none"])["Id"]
    try:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            stream = io.BufferedReader(_Pieces(client.api.export(container)), 1 << 20)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    if member.isreg():
                        tar.extract(member, root, filter="data")
            return measure_apart(Path(root), program)
    finally:
        client.api.remove_container(container, force=True)


def measure_apart(folder: Path, program: Path) -> Agreement:
    """measure() in a process of its own: what it needs is not the caller's memory. Raises CalledProcessError."""
    argv = [sys.executable, __file__, str(folder), "--cuobjdump", str(program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, DIFFERENT):
        done.check_returncode()
    return Agreement(**json.loads(done.stdout))


class _Pieces(io.RawIOBase):
    """Pieces of bytes, as a file to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._left = self._left or next(self._pieces, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def code_files(folder: Path) -> Iterator[str]:
    """What cuobjdump is asked about, as the census names it."""
    for place in sorted(folder.rglob("*")):
        if place.is_symlink() or not place.is_file():
            continue
        with place.open("rb") as file:
            start = file.read(8)
        if start.startswith((census.ELF, census.FATBIN)) or start == census.AR:
            yield f"/{place.relative_to(folder)}"


def seen_by_census(holding: census.Holding) -> Entries:
    """What lies in the sections that cuobjdump knows."""
    known = {name.decode() for name in fatbin.SECTIONS} | {"file"}
    seen: Entries = Counter()
    for (where, entry), number in holding.code.items():
        if where in known:
            seen[named(entry)] += number
    return seen


def named(entry: fatbin.Entry) -> tuple[str, str]:
    return entry.kind, entry.arch.partition("_")[2]


def seen_by_cuobjdump(program: Path, file: Path) -> Entries:
    """Kind and architecture of each entry. It says 255 for a file without GPU code."""
    seen: Entries = Counter()
    kind = None
    with subprocess.Popen(
        [program, "-all", "-symbols", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        # The names of a library's kernels are hundreds of megabytes.
        for line in process.stdout:
            if line.startswith("Fatbin "):
                kind = KINDS.get(line.rstrip(), line.rstrip())
            elif kind is not None and (match := ARCH.match(line)):
                seen[kind, match[1]] += 1
                kind = None
    return seen


def hidden_in(file: Path, program: Path) -> tuple[Entries, Entries]:
    """The hidden code of one ELF file as the census sees it, and as cuobjdump does when it is shown to it."""
    ours: Entries = Counter()
    theirs: Entries = Counter()
    packed = []
    with file.open("rb") as stream, tempfile.TemporaryDirectory() as work:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if data[:6] != b"\x7fELF\x02\x01":
            return ours, theirs
        for piece in hidden.search(data, stream.fileno()):
            code = data[piece.start : piece.end]
            in_fatbin = code.startswith(hidden.FATBIN_MARK)
            seen = [named(entry) for entry, _, _ in piece.entries]
            if not in_fatbin and int(seen[0][1].rstrip("a")) < OLDEST:
                continue
            ours.update(seen)
            if in_fatbin:
                packed.append(code[fatbin.CONTAINER.size :])
            else:
                Path(work, "bare.cubin").write_bytes(code)
                done = subprocess.run([program, "-lelf", f"{work}/bare.cubin"], capture_output=True, text=True)
                theirs.update(("cubin", m[1]) for line in done.stdout.splitlines() if (m := BARE.match(line)))
        if packed:
            # One fatbin with the entries of all: it reads a file of several only to the end of the first.
            head = fatbin.CONTAINER.pack(fatbin.MAGIC, 1, fatbin.CONTAINER.size, sum(map(len, packed)))
            Path(work, "packed.fatbin").write_bytes(head + b"".join(packed))
            theirs += seen_by_cuobjdump(program, Path(work, "packed.fatbin"))
    return ours, theirs


def differing(ours: Entries, theirs: Entries) -> list[str]:
    return [
        f"{name} only: {sorted(more.items())}"
        for name, more in (("census", ours - theirs), ("cuobjdump", theirs - ours))
        if more
    ]


def cuobjdump(folder: Path) -> Path:
    """The pinned cuobjdump of the package index, below `folder`. Raises BadInput, BuildFailed."""
    home = folder / f"cuobjdump-{VERSION}"
    program = home / "nvidia" / "cu13" / "bin" / "cuobjdump"
    if not program.is_file():
        home.mkdir(parents=True, exist_ok=True)
        pin = home / "requirements.txt"
        pin.write_text(f"nvidia-cuda-cuobjdump=={VERSION} --hash=sha256:{SHA256[platform.machine()]}\n")
        words = [
            uv_program(),
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--no-deps",
            "--target",
            home,
            "-r",
            pin,
        ]
        proc.run([str(word) for word in words], what="cuobjdump cannot be installed")
    return program


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--cuobjdump", type=Path, help="the program (default: the pinned one, below .graft)")
    given = options.parse_args()
    found = measure(given.folder, given.cuobjdump or cuobjdump(ROOT / ".graft" / "bench"))
    print(json.dumps(asdict(found), indent=1))
    sys.exit(DIFFERENT if found.differences else 0)


if __name__ == "__main__":
    main()
