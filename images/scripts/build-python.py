#!/usr/bin/env python3
"""One wheel by the project's own PEP 517 backend, in the venv as it is, without network.

    build-python.py TREE OUT DISTRIBUTION VERSION [--refuse REGEX ...] [--accept PART ...] [--needs NAME ...]

--refuse: lines of the output that mean a part is missing, although the build goes on.
--accept: names of parts that may be missing all the same.
--needs:  distributions that the image has for it; a wheel that wants others is refused. Without it nothing is compared.
Environment: what the architecture and the recipe say, GRAFT_JOBS or GRAFT_JOB_GB, CCACHE_DIR; UV names another uv.
"""

from __future__ import annotations

import argparse
import email.parser
import importlib.metadata
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import buildrun
from buildrun import BuildError
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("distribution")
    parser.add_argument("version", help="the version that must come out")
    parser.add_argument("--refuse", action="append", default=[])
    parser.add_argument("--accept", action="append", default=[])
    parser.add_argument("--needs", nargs="*")
    args = parser.parse_args(argv)
    os.umask(0o022)
    tree, out = args.tree.resolve(strict=True), args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    uv = os.environ.get("UV", "/run/graft/tools/uv")
    command = [uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", out, tree]
    try:
        with tempfile.TemporaryDirectory(prefix="graft-home-") as home:
            env = buildrun.through_ccache(environment(args.version, Path(home)), tree, Path(home) / "ccache-stats")
            lines = buildrun.run(command, env, tree, [tree, out])
        refused = [line.strip() for line in lines if any(re.search(pattern, line) for pattern in args.refuse)]
        refused = [line for line in refused if not any(re.search(named(part), line) for part in args.accept)]
        if refused:
            missing = "; ".join(dict.fromkeys(refused))
            raise BuildError(f"a part of it would be missing, and the recipe's `accepts` does not name it: {missing}")
        print(f"build-python: {prove(out, args.distribution, args.version, args.needs).name}")
    except BuildError as error:
        print(f"build-python: {error}", file=sys.stderr)
        return 1
    return 0


def named(part: str) -> str:
    """A pattern for the name of a part as a whole word: `scaled_mm` is not `scaled_mm_c3x_sm120`."""
    return rf"(?<![A-Za-z0-9_]){re.escape(part)}(?![A-Za-z0-9_])"


def environment(version: str, home: Path) -> dict[str, str]:
    """The whole environment of the build: what the stage says, and what makes the same bytes each time."""
    jobs = str(buildrun.jobs())
    toolkit = os.environ.get("CUDA_HOME")
    path = [str(Path(sys.executable).parent), *([f"{toolkit}/bin"] if toolkit else []), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": ":".join(path),
        "HOME": str(home),
        # The tree has no history to take a version from: the plan says it, under the names that backends read.
        "SETUPTOOLS_SCM_PRETEND_VERSION": version,
        "VLLM_VERSION_OVERRIDE": version,
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_NO_CACHE": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        # One compiler process for each: nvcc's own threads would multiply with them.
        "MAX_JOBS": jobs,
        "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
        "NVCC_THREADS": "1",
        # nvcc names temporary files after its process id, and the names end in the objects.
        "NVCC_APPEND_FLAGS": " ".join(filter(None, [os.environ.get("NVCC_APPEND_FLAGS"), "--objdir-as-tempdir"])),
    }


def prove(out: Path, distribution: str, version: str, needs: Sequence[str] | None) -> Path:
    """The wheel that was asked for, for this Python and platform, and for what is installed. Raises BuildError."""
    wheels = sorted(out.glob("*.whl"))
    found = [(name, str(made)) for name, made, _, _ in (parse_wheel_filename(wheel.name) for wheel in wheels)]
    if found != [(canonicalize_name(distribution), version)]:
        made = ", ".join(wheel.name for wheel in wheels) or "no wheel"
        raise BuildError(f"the tree built {made}, not {distribution} {version}")
    wheel = wheels[0]
    tags = parse_wheel_filename(wheel.name)[3]
    if tags.isdisjoint(sys_tags()):
        here = next(sys_tags())
        raise BuildError(f"{wheel.name} is for another Python or platform than this one, {here}")
    for requirement in requirements(wheel):
        name = canonicalize_name(requirement.name)
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if needs is not None and name not in map(canonicalize_name, needs):
                raise BuildError(
                    f"{wheel.name} needs {requirement}, which the lock does not have: add it to `requires`"
                ) from None
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            raise BuildError(f"{wheel.name} is for {requirement}, and the image has {name} {installed}")
    return wheel


def requirements(wheel: Path) -> list[Requirement]:
    """What a wheel needs here, without extras."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        text = archive.read(name).decode("utf-8", "replace")
    headers = email.parser.HeaderParser().parsestr(text)
    listed = [Requirement(str(value)) for value in headers.get_all("Requires-Dist") or ()]
    return [r for r in listed if r.marker is None or r.marker.evaluate({"extra": ""})]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
