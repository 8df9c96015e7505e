"""`make bench`: what the main job costs, against one plain Dockerfile that installs the same set with pip.

Both run in one engine of the bench's own, one after the other, so only the ratios mean something. The control is what
people write today: patches copied in first, then one `pip install` of the locked requirements, then FlashInfer from
its patched sdist with the same compile script. Results go to docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import components
import gpu_census
import judge_scale
import lint_scale

from graft.build import image_id
from graft.commands.image import build as build_image
from graft.commands.programs import ready_engine
from graft.commands.session import Session, make_plan, open_session
from graft.console import Console
from graft.engine import stop
from graft.paths import Paths

ROOT = Path(__file__).parents[2]
PATCH = "vllm/mtp-indexer-scales"
KERNEL = "flashinfer/norm-scale-after-wait"


@dataclass
class Row:
    """One line of the table; seconds, and MiB where it says so."""

    what: str
    graft: float
    control: float | None = None
    unit: str = "s"
    note: str = ""


@dataclass
class Bench:
    """A copy of the project with a .graft of its own, and the engine in it."""

    root: Path
    rows: list[Row] = field(default_factory=list)

    @property
    def session(self) -> Session:
        return open_session(Paths(self.root), Console(), recipe="glm-dsa", arch="sm90", mode="embedded")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="without the cold builds and the control")
    options.add_argument("--output", type=Path, default=ROOT / "docs" / "performance.md")
    given = options.parse_args()
    with copy_of_project() as root:
        bench = Bench(root)
        try:
            measure(bench, quick=given.quick)
        except BaseException:
            # Most of an hour of measurements; the page itself is all of one run or stays as it was.
            print(report(bench.rows))
            raise
        finally:
            stop(Paths(root))
        given.output.write_text(report(bench.rows), encoding="utf-8")
    print(report(bench.rows))


def measure(bench: Bench, *, quick: bool) -> None:
    engine = ready_engine(bench.session)
    for verb in ("plan", "lint"):
        bench.rows.append(Row(f"`make {verb}`", timed_cli(bench, verb)))
    scale = judge_scale.measure()
    bench.rows.append(
        Row(
            f"{scale.patches} patches over {scale.files:,} files judged",
            scale.seconds,
            note=f"{scale.mebibytes:.0f} MiB beside the files themselves",
        )
    )
    half, whole = lint_scale.measure(lint_scale.RECIPES // 2), lint_scale.measure()
    bench.rows.append(
        Row(
            f"lint of {whole.recipes:,} recipes with {lint_scale.COMPONENTS} components each",
            whole.seconds,
            note=f"{whole.images:,} images planned and rendered; {half.seconds:.1f} s for half of them",
        )
    )
    fetch_seconds = timed_cli(bench, "fetch")
    bench.rows.append(Row("download of everything", fetch_seconds, note="4 GB, into an empty store"))
    cold = timed_build(bench)
    uncached = components.newest(bench.session)
    control = None if quick else Control(bench)
    control_cold = control.build("cold") if control else None
    bench.rows.append(
        Row("cold build, downloads included", fetch_seconds + cold, control_cold, note="no cache of any kind")
    )
    # The first of the two runs is the gate; the second has nothing to do.
    bench.rows.append(Row("`make image` with nothing to do", timed_cli(bench, "image")))
    bench.rows.append(gpu_code(bench))
    before = layers(bench)
    edit(bench.root / "patches" / f"{PATCH}.patch")
    relock(bench)
    seconds = timed_build(bench)
    control_edit = control.build("edited patch") if control else None
    bench.rows.append(
        Row("edit of one Python patch", seconds, control_edit, note="from the edited file to the candidate")
    )
    new = [size for digest, size in layers(bench).items() if digest not in before]
    bench.rows.append(Row("new layers after that edit", sum(new) / 2**20, unit="MiB", note="uncompressed"))
    edit(bench.root / "patches" / f"{KERNEL}.patch")
    relock(bench)
    bench.rows.append(Row("edit of one kernel patch", timed_build(bench), note="a comment in norm.cuh"))
    bench.rows += compiling(bench, uncached)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    bench.rows.append(Row("peak memory of graft itself", peak, unit="MiB"))
    del engine


def compiling(bench: Bench, uncached: components.Component) -> list[Row]:
    """FlashInfer's compilers with nothing to go by, and what each cache spares. After the edit of the kernel patch.

    Raises RuntimeError when a compiler ran that should not have, or none did.
    """
    what = "compilers of FlashInfer"
    edited = components.newest(bench.session)
    components.forget_steps(bench.session, compile_cache=False)
    stored = components.build(bench.session)
    components.forget_built(bench.session)
    cached = components.build(bench.session)
    if (
        uncached.cached
        or cached.compiled
        or stored.compiled + stored.cached
        or not 0 < edited.compiled < uncached.compiled
    ):
        raise RuntimeError(f"not what the rows say: {uncached}, {edited}, {stored}, {cached}")
    peak = f"largest process {uncached.peak_gb:.1f} GiB"
    control = uncached.seconds
    return [
        Row(what, uncached.seconds, note=f"no cache, no store: {uncached.objects}, {peak}"),
        Row(f"{what}, one header edited", edited.seconds, control, note=f"compile cache: {edited.objects}"),
        Row(
            f"{what}, unchanged, not in the store",
            cached.seconds,
            control,
            note=f"compile cache alone: {cached.objects}",
        ),
        Row(f"{what}, unchanged", stored.call, control, note="store alone: no compiler runs"),
    ]


def gpu_code(bench: Bench) -> Row:
    """The census of the image's GPU code against cuobjdump. Raises RuntimeError when they do not agree."""
    session = bench.session
    engine = ready_engine(session)
    image = built_image(session)
    program = gpu_census.cuobjdump(ROOT / ".graft" / "bench")
    with contextlib.closing(engine.client()) as client:
        found = gpu_census.measure_image(client, image, program, bench.root / ".graft")
    if found.differences:
        raise RuntimeError(f"the census and cuobjdump differ: {found.differences}")
    note = f"control: cuobjdump {gpu_census.VERSION}; {found.entries + found.hidden:,} entries, in each file the same"
    return Row("GPU code of every file of the image", found.seconds, found.cuobjdump_seconds, note=note)


def built_image(session: Session) -> str:
    """The id of the candidate that was built last."""
    return image_id(session.paths.contexts / "glm-dsa-sm90" / "runtime.json")


def timed_cli(bench: Bench, verb: str) -> float:
    """Seconds of one verb in a process of its own; the second of two runs, as users see it, except for fetch."""
    env = {**os.environ, "PYTHONPATH": str(bench.root / "scripts"), "PYTHONDONTWRITEBYTECODE": ""}
    env |= {"PYTHONPYCACHEPREFIX": str(bench.root / ".graft" / "pycache"), "ENGINE": "embedded"}
    seconds = 0.0
    for _ in range(1 if verb == "fetch" else 2):
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "graft", verb], cwd=bench.root, env=env, check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - started
    return seconds


def timed_build(bench: Bench) -> float:
    """Seconds from the plan to the candidate, the gate left out: it has no counterpart in the control."""
    session = bench.session
    engine = ready_engine(session)
    started = time.monotonic()
    build_image(session, make_plan(session), engine)
    return time.monotonic() - started


def relock(bench: Bench) -> None:
    timed = {**os.environ, "PYTHONPATH": str(bench.root / "scripts")}
    subprocess.run(
        [sys.executable, "-m", "graft", "lock"], cwd=bench.root, env=timed, check=True, stdout=subprocess.DEVNULL
    )


def edit(patch: Path) -> None:
    """Add a comment line to the first hunk of a patch, as an edit by hand would."""
    lines = patch.read_text(encoding="utf-8").split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("+") and not line.startswith("+++"))
    header = max(i for i in range(at) if lines[i].startswith("@@"))
    old, new = lines[header].split(" ")[1:3]
    start, count = new[1:].split(",")
    mark = "// bench" if patch.name.startswith("norm") else "# bench"
    indent = lines[at][1 : len(lines[at]) - len(lines[at][1:].lstrip())]
    lines.insert(at, f"+{indent}{mark}")
    lines[header] = f"@@ {old} +{start},{int(count) + 1} @@"
    patch.write_text("\n".join(lines), encoding="utf-8")


def layers(bench: Bench) -> Mapping[str, int]:
    """Layer digest -> bytes of the candidate that was built last."""
    session = bench.session
    engine = ready_engine(session)
    image = built_image(session)
    client = engine.client()
    try:
        digests = client.images.get(image).attrs["RootFS"]["Layers"]
        sizes = [entry["Size"] for entry in reversed(client.images.get(image).history()) if entry["Size"]]
    finally:
        client.close()
    return dict(zip(digests, sizes, strict=False))


class Control:
    """The plain Dockerfile, in the same engine."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._folder = bench.root / ".graft" / "control"

    def build(self, name: str) -> float:
        session = self._bench.session
        planned = make_plan(session)
        engine = ready_engine(session)
        contexts = session.paths.contexts / "glm-dsa-sm90"
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(session.paths.patches, self._folder / "patches")
        shutil.copy(Path(__file__).parent / "control.Dockerfile", self._folder / "Dockerfile")
        os.link(contexts / "main" / "rootfs.tar", self._folder / "rootfs.tar")
        pins = [p for p in planned.lock.packages if p.use == "image" and p.on("sm90")]
        text = "".join(f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in pins)
        (self._folder / "requirements.txt").write_text(text)
        source = planned.builds[0].source
        (self._folder / "sdist.txt").write_text(f"{source.name}=={source.version} --hash=sha256:{source.sha256}\n")
        words = [str(engine.docker), "buildx", "build", "--progress=plain", "--provenance=false", str(self._folder)]
        words += ["--allow", "network.host", "--iidfile", str(self._folder / "iid")]
        for context in ("scripts", "fatbin", "patches-vllm", "patches-flashinfer", "builder-debs"):
            words += ["--build-context", f"{context}={contexts / context}"]
        words += ["--build-context", f"pip={Path(importlib.util.find_spec('pip').origin).parent}"]
        words += ["--build-arg", f"MODULES={' '.join(planned.builds[0].component.modules)}"]
        for secret, file in host_settings(self._folder).items():
            words += ["--secret", f"id={secret},src={file}"]
        print(f"control: {name}")
        started = time.monotonic()
        with (session.paths.logs / "control.log").open("ab") as log:
            subprocess.run(words, env=engine.env(), stdout=log, stderr=log, check=True)
        return time.monotonic() - started


def host_settings(folder: Path) -> Mapping[str, Path]:
    """What pip needs to reach this host's index, handed over as secrets so that no layer keeps it."""
    bundle = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    names = {"https_proxy", "http_proxy", "no_proxy", "pip_index_url"}
    passed = [f"{name}={value}" for name, value in os.environ.items() if name.lower() in names]
    (folder / "settings").write_text("".join(f"export {line}\n" for line in passed))
    return {"ca": Path(bundle), "settings": folder / "settings"}


@contextlib.contextmanager
def copy_of_project() -> Iterator[Path]:
    """The tracked files, in a folder whose .graft is empty."""
    base = ROOT / ".graft" / "bench"
    base.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="run-", dir=base))
    try:
        for name in ("build.yaml", "recipes", "patches", "images", "scripts", "requirements.txt"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def report(rows: list[Row]) -> str:
    """docs/performance.md."""
    head = """# Numbers

Made by `make bench` on one machine in one run: compare the columns, not the seconds. The control is
[a plain Dockerfile](../tests/bench/control.Dockerfile) that copies the patches in, then installs the same packages with
pip and compiles the same FlashInfer modules; in the rows of the compilers it is Graft's own build with no cache and no
store. The gate is not part of any figure.

"""
    lines = [f"{os.cpu_count()} cores, no GPU.\n\n| what | Graft | control | ratio | |\n|---|---|---|---|---|\n"]
    for row in rows:
        control, ratio = "", ""
        if row.control is not None:
            times = row.control / row.graft
            control, ratio = f"{row.control:.1f} {row.unit}", f"{times:.0f}x" if times >= 10 else f"{times:.1f}x"
        digits = 3 if row.graft < 1 else 1
        lines.append(f"| {row.what} | {row.graft:.{digits}f} {row.unit} | {control} | {ratio} | {row.note} |\n")
    return head + "".join(lines)


if __name__ == "__main__":
    main()
