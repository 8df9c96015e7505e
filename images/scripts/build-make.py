#!/usr/bin/env python3
"""NCCL by its own Makefile, for one architecture, packed as the wheel that it stands in for.

    build-make.py TREE OUT --distribution nvidia-nccl-cu13 --version 2.30.4

The wheel holds nvidia/nccl/lib/libnccl.so.2 and nvidia/nccl/include/, where torch looks for its own copy: installed
instead of that one, it is the only NCCL there is. CUDA_HOME and NVCC_GENCODE say the toolkit and the architecture.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import buildrun
from buildrun import BuildError

#: Zip files cannot hold anything older.
EPOCH_1980 = 315532800
SONAME = "libnccl.so.2"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--distribution", required=True)
    parser.add_argument("--version", required=True, help="the version that must come out")
    args = parser.parse_args(argv)
    os.umask(0o022)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="graft-make-") as folder:
            make(args.tree.resolve(strict=True), Path(folder))
            library = prove(Path(folder), args.version)
            print(pack(library, Path(folder) / "include", args.out, args.distribution, args.version))
    except BuildError as error:
        print(f"build-make: {error}", file=sys.stderr)
        return 1
    return 0


def make(tree: Path, build: Path) -> None:
    """Runs the Makefile; the architecture is mandatory, because without it all of them are compiled."""
    gencode, toolkit = os.environ.get("NVCC_GENCODE", ""), os.environ.get("CUDA_HOME", "")
    if not re.fullmatch(r"-gencode=arch=compute_\d+[af]?,code=sm_\d+[af]?", gencode) or not toolkit:
        raise BuildError(f"wanted: CUDA_HOME, and one architecture in NVCC_GENCODE (is {gencode!r})")
    command = ["make", "-C", str(tree), f"-j{buildrun.jobs()}", "src.build"]
    command += [f"CUDA_HOME={toolkit}", f"BUILDDIR={build}", f"NVCC_GENCODE={gencode}"]
    env = buildrun.through_ccache(os.environ, tree, build / "ccache-stats")
    if nvcc := env.get("PYTORCH_NVCC"):
        command.append(f"NVCC={nvcc}")
    buildrun.run(command, env, tree, [tree, build])


def prove(build: Path, version: str) -> Path:
    """The library that was built: its soname, and the version that it answers with."""
    library = build / "lib" / f"libnccl.so.{version}"
    if not library.is_file():
        made = sorted(path.name for path in (build / "lib").glob("libnccl.so.*"))
        raise BuildError(f"the tree built {made or 'no library'}, not {library.name}")
    dynamic = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    if f"soname: [{SONAME}]" not in dynamic:
        raise BuildError(f"{library.name} does not have the soname {SONAME}")
    if f"NCCL version {version}".encode() not in library.read_bytes():
        raise BuildError(f"{library.name} does not say NCCL version {version}")
    return library


def pack(library: Path, include: Path, out: Path, distribution: str, version: str) -> Path:
    """A wheel with the library and its headers."""
    name = distribution.replace("-", "_")
    stem = f"{name}-{version}"
    tag = f"py3-none-linux_{platform.machine()}"
    files = {f"nvidia/nccl/lib/{SONAME}": library.read_bytes(), "nvidia/nccl/__init__.py": b""}
    for header in sorted(path for path in include.rglob("*") if path.is_file()):
        files[f"nvidia/nccl/include/{header.relative_to(include)}"] = header.read_bytes()
    files[f"{stem}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\nSummary: NCCL, built by Graft\n"
    ).encode()
    files[f"{stem}.dist-info/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: graft\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    wheel = out / f"{stem}-{tag}.whl"
    write(wheel, files, f"{stem}.dist-info/RECORD")
    return wheel


def write(wheel: Path, files: Mapping[str, bytes], record: str) -> None:
    """The zip file, with its RECORD last and one time for all."""
    lines = "".join(f"{name},sha256={urlsafe_sha256(data)},{len(data)}\n" for name, data in files.items())
    moment = time.gmtime(max(EPOCH_1980, int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH_1980))))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, record: f"{lines}{record},,\n".encode()}.items():
            info = zipfile.ZipInfo(name, moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if name.endswith(SONAME) else 0o100644) << 16
            archive.writestr(info, data)


def urlsafe_sha256(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
