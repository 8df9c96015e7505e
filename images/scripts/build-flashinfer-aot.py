#!/usr/bin/env python3
"""Builds FlashInfer from a (patched) sdist tree, without network, into wheels that are the same bytes each time.

    build-flashinfer-aot.py wheel   TREE OUT --version V                  the Python package and its headers
    build-flashinfer-aot.py modules TREE OUT --version V norm page rope   these modules, compiled for one architecture

`modules` writes graft_flashinfer_aot-V+smXYa: the libraries lie at flashinfer/data/aot/<name>/<name>.so, the first
place where FlashInfer looks (flashinfer/jit/env.py, get_aot_artifacts), before it thinks of a compiler or a GPU. They
are a wheel of their own so that a kernel edit changes a small layer, and so that every file has one owner.

Environment: CUDA_HOME (completed by cuda-links.sh), FLASHINFER_CUDA_ARCH_LIST (exactly one, as "9.0a"), and if wanted
CCACHE_DIR (then objects come from ccache), GRAFT_JOBS (default: what cores and free memory allow, with GRAFT_JOB_GB for
each), SOURCE_DATE_EPOCH.
Runs with the interpreter of an environment that holds FlashInfer's own requirements (torch, apache-tvm-ffi, ...).
Nothing else of the caller's environment reaches a compiler.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "smoke"))
import buildrun
from buildrun import BuildError
from lib import fatbin

# Fixed, because nvcc writes the paths of its outputs into objects.
WORK = Path("/tmp/graft-flashinfer-aot")
# Zip files cannot hold anything older.
EPOCH_1980 = 315532800

# FlashInfer's __init__ imports every front end (CuTe DSL, cuDNN, ...: 12 s); the JIT package alone is all this needs.
PREAMBLE = """
import importlib, json, sys, types
tree, names = sys.argv[1], sys.argv[2:]
package = types.ModuleType("flashinfer")
package.__path__ = [tree + "/flashinfer"]
sys.modules["flashinfer"] = package
def spec(name):
    return getattr(importlib.import_module("flashinfer.jit." + name), f"gen_{name}_module")()
"""
GENERATE = """
specs = {name: spec(name) for name in names}
for s in specs.values():
    s.write_ninja()
print(json.dumps({name: [s.name, str(s.ninja_path), str(s.jit_library_path)] for name, s in specs.items()}))
"""
PROVE = """
import pathlib, shutil
assert shutil.which("nvcc") is None, "nvcc is on PATH, so this would prove nothing"
for name in names:
    s = spec(name)
    want = pathlib.Path(tree).resolve() / "flashinfer/data/aot" / s.name / (s.name + ".so")
    assert s.is_aot and s.get_library_path() == want, f"{name}: FlashInfer would use {s.get_library_path()}, not {want}"
    s.build_and_load()
    assert str(want) in pathlib.Path("/proc/self/maps").read_text(), f"{name}: {want} was not loaded"
"""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["wheel", "modules"])
    parser.add_argument("tree", type=Path, help="the unpacked sdist; it is written to")
    parser.add_argument("out", type=Path, help="folder for the wheel")
    parser.add_argument("--version", required=True, help="the version that must come out")
    parser.add_argument("names", nargs="*", help="FlashInfer modules to compile")
    args = parser.parse_intermixed_args(argv)
    os.umask(0o022)
    tree, out = args.tree.resolve(strict=True), args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    try:
        if args.part == "wheel":
            print(build_wheel(tree, out, args.version))
        else:
            print(build_modules(tree, out, args.version, args.names))
    except (BuildError, fatbin.FatbinError) as error:
        print(f"build-flashinfer-aot: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    return 0


def build_wheel(tree: Path, out: Path, version: str) -> Path:
    """The flashinfer_python wheel of the tree, by its own PEP 517 backend."""
    run(
        [sys.executable, "-c", "import build_backend, sys; build_backend.build_wheel(sys.argv[1])", str(out)],
        # The backend would otherwise install compilers from an index, build NIXL, and upgrade NCCL.
        {**base_env(), "FLASHINFER_BUILD_NO_PIP": "1", "BUILD_NVEP": "0", "BUILD_NIXL_EP": "0", "BUILD_NCCL_EP": "0"},
        cwd=tree,
    )
    wheel = out / f"flashinfer_python-{version}-py3-none-any.whl"
    if not wheel.exists():
        raise BuildError(f"the tree built {sorted(p.name for p in out.glob('*.whl'))}, not {wheel.name}")
    prove_wheel(tree, wheel)
    return wheel


def prove_wheel(tree: Path, wheel: Path) -> None:
    """The headers and sources in the wheel are those of the tree, so a patch is in it; nothing in it is compiled."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for folder in ("include", "csrc"):
            for path in sorted((tree / folder).rglob("*")):
                member = f"flashinfer/data/{path.relative_to(tree)}"
                if path.is_file() and (member not in names or archive.read(member) != path.read_bytes()):
                    raise BuildError(f"{member} in {wheel.name} is not the tree's {path.relative_to(tree)}")
        if compiled := sorted(name for name in names if name.endswith(".so")):
            raise BuildError(f"{wheel.name} holds compiled files: {compiled[:3]}")


def build_modules(tree: Path, out: Path, version: str, names: Sequence[str]) -> Path:
    """A wheel with these modules, compiled for the one architecture in FLASHINFER_CUDA_ARCH_LIST, and loaded once."""
    listed = os.environ.get("FLASHINFER_CUDA_ARCH_LIST", "")
    match = re.fullmatch(r"(\d+)\.(\d)([af]?)", listed)
    if match is None or not names:
        raise BuildError(f"wanted: one architecture as 9.0a in FLASHINFER_CUDA_ARCH_LIST (is {listed!r}), and modules")
    arch = f"sm{match[1]}{match[2]}"
    toolkit = Path(os.environ["CUDA_HOME"]).resolve(strict=True)
    # As an editable install does it: the package finds headers and sources through links, at fixed paths.
    link_data = "import build_backend; build_backend._create_data_dir(use_symlinks=True)"
    run([sys.executable, "-c", link_data], base_env(), cwd=tree)
    env = {
        **base_env(),
        "CUDA_HOME": str(toolkit),
        "CXX": "g++",
        "FLASHINFER_CUDA_ARCH_LIST": listed,
        "FLASHINFER_WORKSPACE_BASE": str(WORK),
        # nvcc names temporary files after its process id, and the names end in the objects.
        "FLASHINFER_EXTRA_CUDAFLAGS": "--objdir-as-tempdir",
    }
    found = json.loads(run([sys.executable, "-c", PREAMBLE + GENERATE, str(tree), *names], env).splitlines()[-1])
    libraries = {name: Path(library) for name, _, library in found.values()}
    compile_all([Path(ninja) for _, ninja, _ in found.values()], tree, env)
    for name, library in sorted(libraries.items()):
        entries = fatbin.read(library)
        if fatbin.verdict(entries, arch) != "covered" or fatbin.foreign(entries, arch):
            held = ", ".join(sorted({entry.arch for entry in entries})) or "none"
            raise BuildError(f"module {name} must hold code for {arch} and no other, and holds {held}")
    wheel = pack(libraries, out, version, arch + match[3])
    prove_modules(tree, wheel, names, toolkit, env)
    return wheel


def compile_all(ninja_files: Sequence[Path], tree: Path, env: Mapping[str, str]) -> None:
    """Run FlashInfer's own ninja files, through ccache where CCACHE_DIR is set."""
    if "CCACHE_DIR" in os.environ:
        for file in ninja_files:
            text = file.read_text()
            # ccache knows only nvcc's short form of this option.
            edited = text.replace(" --generate-dependencies-with-compile ", " -MD ")
            edited = re.sub(r"(?m)^(cxx|nvcc)_launcher = $", r"\1_launcher = ccache", edited)
            if edited.count("_launcher = ccache") != 2 or " -MD " not in edited:
                raise BuildError(f"{file} has another form than this knows; ccache cannot be put in")
            file.write_text(edited)
        env = {
            **env,
            "CCACHE_DIR": os.environ["CCACHE_DIR"],
            **buildrun.ccache_settings(env, WORK / "ccache-stats"),
        }
    top = WORK / "all.ninja"
    top.write_text("".join(f"subninja {file}\n" for file in ninja_files))
    command = ["ninja", "-C", str(WORK), "-f", str(top), "-j", str(buildrun.jobs())]
    # Ninja files name their inputs in the tree and everything they make in the work folder.
    buildrun.run(command, env, WORK, [WORK, tree])
    for line in sorted((WORK / ".ninja_log").read_text().splitlines()[1:]):
        start, end, _, output, _ = line.split("\t")
        print(f"  {(int(end) - int(start)) / 1000:6.1f} s  {Path(output).name}", file=sys.stderr)


def pack(libraries: Mapping[str, Path], out: Path, version: str, arch: str) -> Path:
    """A wheel with the libraries where FlashInfer looks for them."""
    stem = f"graft_flashinfer_aot-{version}+{arch}"
    tag = f"py3-none-linux_{platform.machine()}"
    files = {f"flashinfer/data/aot/{name}/{name}.so": path.read_bytes() for name, path in sorted(libraries.items())}
    files[f"{stem}.dist-info/METADATA"] = (
        "Metadata-Version: 2.1\n"
        "Name: graft-flashinfer-aot\n"
        f"Version: {version}+{arch}\n"
        f"Summary: FlashInfer modules compiled for {arch}: {', '.join(sorted(libraries))}\n"
        "License: Apache-2.0\n"
        f"Requires-Dist: flashinfer-python=={version}\n"
    ).encode()
    files[f"{stem}.dist-info/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: graft\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    record = f"{stem}.dist-info/RECORD"
    files[record] = (
        "".join(f"{name},sha256={urlsafe_sha256(data)},{len(data)}\n" for name, data in files.items()) + f"{record},,\n"
    ).encode()
    wheel = out / f"{stem}-{tag}.whl"
    moment = time.gmtime(max(EPOCH_1980, int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH_1980))))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(info, data)
    return wheel


def urlsafe_sha256(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def prove_modules(tree: Path, wheel: Path, names: Sequence[str], toolkit: Path, env: Mapping[str, str]) -> None:
    """FlashInfer finds and loads what the wheel holds, with no nvcc, no toolkit and compiling forbidden."""
    aot = tree / "flashinfer/data/aot"
    driver = WORK / "driver"
    driver.mkdir()
    # There is no driver here; a module that asks for libcuda.so.1 gets the stub it was linked with.
    (driver / "libcuda.so.1").symlink_to(toolkit / "lib/stubs/libcuda.so")
    bare = {key: value for key, value in env.items() if key != "CUDA_HOME"}
    bare |= {"PATH": path_of(), "FLASHINFER_DISABLE_JIT": "1", "LD_LIBRARY_PATH": str(driver)}
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tree, [name for name in archive.namelist() if name.startswith("flashinfer/")])
        run([sys.executable, "-c", PREAMBLE + PROVE, str(tree), *names], bare)
    finally:
        shutil.rmtree(aot, ignore_errors=True)


def path_of(*first: Path) -> str:
    return ":".join(map(str, [*first, Path(sys.executable).parent, "/usr/bin", "/bin"]))


def base_env() -> dict[str, str]:
    """The whole environment of a child process: nothing is inherited that could change a byte."""
    toolkit = os.environ.get("CUDA_HOME")
    return {
        "PATH": path_of(*([Path(toolkit) / "bin"] if toolkit else [])),
        "HOME": str(WORK),
        "TMPDIR": "/tmp",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", str(EPOCH_1980)),
    }


def run(argv: Sequence[str], env: Mapping[str, str], *, cwd: Path = WORK) -> str:
    """Its stdout. On failure a BuildError with the end of its output."""
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise BuildError(f"{Path(argv[0]).name} ended with {done.returncode}:\n{tail}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
