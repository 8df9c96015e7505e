"""From a plan to a candidate: contexts on disk, one buildx call per target, the image id on success.

Contexts are folders of hard links into the store, so they cost no space and keep fixed times. The image is
never named here: its identity is the id that buildx reports when it exits 0.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graft import metadata, proc
from graft.console import Console
from graft.errors import BuildFailed, GraftError, OutOfMemory, PatchMismatch
from graft.paths import Paths
from graft.plan import SMOKE_FILES, Layer, Plan
from graft.render import Rendered
from graft.store import CHECKED_MTIME, Store
from graft.unlocked import UnlockedPlan

#: Beside the image's Dockerfile: with the stage that takes the wheels out.
COMPONENTS_FILE = "Dockerfile.components"
STEP = re.compile(r"^#(\d+) (.*)$")
ENGINE_GONE = (
    "Cannot connect to the Docker daemon",
    "error reading from server: EOF",
    "connection refused",
    "transport is closing",
    "unexpected EOF",
    "no such file or directory: docker.sock",
)
#: What the scripts of the build stages say of a failure, and which step is whose.
CAUSE = re.compile(r"^#(\d+) [\d.]+ build-(?:python|make|flashinfer-aot): (.*)$", re.MULTILINE)
#: What they say of memory, and what they measured.
KILLED = re.compile(r"it ran out of memory with (\d+) jobs")
KILLED_STEP = re.compile(r"exit code: 137\b")
MEASURED = re.compile(r"^#(\d+) [\d.]+ graft-measured: (\{.*\})$", re.MULTILINE)
BUILD_STAGE = re.compile(r"^#(\d+) \[build-([a-z0-9._-]+) +\d+/\d+\]", re.MULTILINE)
#: Exit status of images/scripts/apply-patches.sh when a tree is not the locked one.
PATCH_STATUS = re.compile(r"exit code: 5\b")


@dataclass(frozen=True)
class BuildCommand:
    """One call of buildx; `argv` can be looked at without an engine."""

    docker: Path
    dockerfile: Path
    main_context: Path
    contexts: Mapping[str, Path]
    target: str
    epoch: int
    metadata: Path
    secrets: Mapping[str, Path]
    no_cache: bool = False
    output: Path | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        words = [str(self.docker), "buildx", "build", "--progress=plain", "--provenance=false", "--network=none"]
        words += ["--file", str(self.dockerfile), "--target", self.target]
        # Not an ARG of any stage: BuildKit takes it for the times in the image's configuration.
        words += ["--build-arg", f"SOURCE_DATE_EPOCH={self.epoch}"]
        # Files alone are no image, and have no id.
        result = (
            ("--output", f"type=local,dest={self.output}") if self.output else ("--metadata-file", str(self.metadata))
        )
        words += result
        for name, folder in self.contexts.items():
            words += ["--build-context", f"{name}={folder}"]
        for name, file in self.secrets.items():
            words += ["--secret", f"id={name},src={file}"]
        if self.no_cache:
            words.append("--no-cache")
        return (*words, str(self.main_context))


def image_id(told: Path) -> str:
    """What the engine calls an image, from the file that buildx writes about its build.

    That is the digest of its configuration, or of its manifest where images lie in containerd's store; `--iidfile` has
    the first one in either case.
    """
    return str(json.loads(told.read_text(encoding="utf-8"))["containerimage.digest"])


@dataclass(frozen=True)
class Inputs:
    """What the contexts are made from, beside the store.

    pristine: component -> file below site-packages -> original bytes of every file that a patch touches.
    patches:  component -> file name -> bytes of what apply-patches.sh reads.
    """

    rootfs: Path
    builder_debs: Sequence[Path]
    pristine: Mapping[str, Mapping[str, bytes]]
    patches: Mapping[str, Mapping[str, bytes]]


def prepare_contexts(paths: Paths, plan: Plan, rendered: Rendered, store: Store, inputs: Inputs) -> Path:
    """Lay out all contexts of a plan below one folder, replacing what lay there; returns the folder.

    `<folder>/main` is the main context, `<folder>/Dockerfile` the rendered file, everything else a named context.
    """
    folder = paths.contexts / f"{plan.recipe.recipe}-{plan.arch.name}"
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    _link(inputs.rootfs, fresh / "main" / "rootfs.tar")
    for layer in plan.layers:
        _layer(fresh, layer, store)
    if plan.builds:
        _layer(fresh, plan.build_wheels, store)
    if "fatbin" in rendered.contexts:
        for name in ("__init__.py", "fatbin.py"):
            _copy(paths.smoke / "lib" / name, fresh / "fatbin" / name)
    for build in (*plan.sources, *plan.builds):
        _link(store.path(build.source), fresh / build.context / build.source.file)
    for deb in inputs.builder_debs:
        _link(deb, fresh / "builder-debs" / deb.name)
    _tools(fresh, plan, store)
    for script in rendered.scripts:
        _copy(paths.scripts / script, fresh / "scripts" / script)
    for component, files in inputs.patches.items():
        for name, data in files.items():
            _bytes(fresh / f"patches-{component}" / name, data)
    _write(fresh / "Dockerfile", rendered.text)
    described = metadata.files(paths, plan, rendered.text)
    _bytes(fresh / "main" / "metadata.tar", metadata.archive(described))
    _smoke(paths, plan, inputs, fresh / "smoke-tests")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in described.items()}
    _write(fresh / "smoke-tests" / "metadata.json", _json(digests))
    # Times of folders reach layers as well.
    for path in [fresh, *fresh.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
            os.utime(path, (CHECKED_MTIME, CHECKED_MTIME))
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return folder


def build_target(
    folder: Path,
    rendered: Rendered,
    plan: Plan,
    docker: Path,
    env: Mapping[str, str],
    target: str,
    console: Console,
    log: Path,
    *,
    jobs: Mapping[str, int] | None = None,
    no_cache: bool = False,
    built: Collection[str] = (),
) -> str:
    """Build one target; returns the image id (`sha256:...`).

    built: the components whose wheels `place_built` has put there: nothing of them is compiled.
    jobs: of the other ones, component -> compiler processes at once; without it what cores and free memory allow there.
    Raises PatchMismatch when a patched tree is not the locked one, OutOfMemory when compilers were killed for it,
    BuildFailed for everything else.
    """
    command = _command(plan, rendered, folder, docker, target, _secrets(plan, folder, jobs or {}), no_cache, built)
    command.metadata.unlink(missing_ok=True)
    _run(command, env, console, log, jobs or {})
    return image_id(command.metadata)


def build_components(
    folder: Path,
    rendered: Rendered,
    plan: Plan,
    docker: Path,
    env: Mapping[str, str],
    names: Sequence[str],
    console: Console,
    log: Path,
    *,
    jobs: Mapping[str, int] | None = None,
    built: Collection[str] = (),
) -> str:
    """Build the wheels of components, at once where they do not need each other; returns the folder with one for each.

    The Dockerfile is the image's with one stage more, which no image holds.
    jobs: component -> compiler processes at once; what is not in it takes what cores and free memory allow there.
    Raises as `build_target` does, and OutOfMemory when compilers were killed for it.
    """
    copies = "".join(f"COPY --from=built-{name} / /{name}/\n" for name in names)
    (folder / COMPONENTS_FILE).write_text(f"{rendered.text}\nFROM scratch AS components\n{copies}", encoding="utf-8")
    command = _command(plan, rendered, folder, docker, "components", _secrets(plan, folder, jobs or {}), built=built)
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    _run(replace(command, dockerfile=folder / COMPONENTS_FILE, output=out), env, console, log, jobs or {})
    return str(out)


def place_built(folder: Path, name: str, wheels: Iterable[Path]) -> None:
    """Lay out the wheels of a component as the context that stands in for the stage `built-<name>`."""
    target = folder / f"built-{name}"
    shutil.rmtree(target, ignore_errors=True)
    for wheel in wheels:
        _link(wheel, target / wheel.name)
    target.chmod(0o755)
    os.utime(target, (CHECKED_MTIME, CHECKED_MTIME))


def _run(command: BuildCommand, env: Mapping[str, str], console: Console, log: Path, jobs: Mapping[str, int]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    target = command.target
    done = proc.run(command.argv, env=env, log=log, on_line=_Steps(console), check=False, what=f"build of {target}")
    if done.rc != 0:
        raise _failure(done, target, log, jobs)


def stage_seconds(log: Path) -> dict[str, float]:
    """Stage -> seconds of its steps that ran, from the log of a build; what came from the cache took none."""
    stages: dict[str, str] = {}
    taken: dict[str, float] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        match = STEP.match(line)
        if match is None:
            continue
        number, rest = match[1], match[2]
        if name := re.match(r"\[([a-z0-9-]+) +\d+/\d+\]", rest):
            stages[number] = name[1]
        elif (done := re.match(r"DONE (\d+\.\d+)s", rest)) and number in stages:
            stage = stages.pop(number)
            taken[stage] = taken.get(stage, 0.0) + float(done[1])
    return taken


@dataclass(frozen=True)
class Measured:
    """What the build of a component took, as it says itself; a component that came from the cache says nothing.

    started: Unix time. seconds, jobs: of its compilers.
    peak_gb: GiB of the largest process. hits, misses, uncached: objects that ccache
    found, that were compiled, and that it could not look for; None when there was no ccache.
    """

    seconds: float
    jobs: int
    peak_gb: float
    hits: int | None = None
    misses: int | None = None
    uncached: int | None = None
    started: float = 0.0

    def __str__(self) -> str:
        said = (
            f"{self.seconds:.0f} s with {self.jobs} job{'s' * (self.jobs != 1)}, largest process {self.peak_gb:.1f} GiB"
        )
        if self.hits is None or self.misses is None:
            return said
        past = f", {self.uncached} past it" if self.uncached else ""
        return f"{said}, {self.hits} of {self.hits + self.misses} objects from the compile cache{past}"


def measured(log: Path) -> dict[str, Measured]:
    """Component -> what its build says it took, from the log of a build."""
    text = log.read_text(encoding="utf-8", errors="replace")
    stages = dict(BUILD_STAGE.findall(text))
    found = {}
    for step, said in MEASURED.findall(text):
        if step in stages:
            facts = json.loads(said)
            found[stages[step]] = Measured(
                **{name: facts[name] for name in Measured.__dataclass_fields__ if name in facts}
            )
    return found


def by_hand(plan: Plan | UnlockedPlan, rendered: Rendered, folder: Path) -> str:
    """The command that builds the rendered file without Graft."""
    return proc.quoted(_command(plan, rendered, folder, Path("docker"), "runtime", {}).argv)


def _command(
    plan: Plan | UnlockedPlan,
    rendered: Rendered,
    folder: Path,
    docker: Path,
    target: str,
    secrets: Mapping[str, Path],
    no_cache: bool = False,
    built: Collection[str] = (),
) -> BuildCommand:
    return BuildCommand(
        docker,
        folder / "Dockerfile",
        folder / "main",
        # A context with the name of a stage takes its place, and nothing that only the stage needs is built.
        {name: folder / name for name in (*rendered.contexts, *(f"built-{name}" for name in built))},
        target,
        plan.epoch,
        folder / f"{target}.json",
        secrets,
        no_cache,
    )


def _secrets(plan: Plan, folder: Path, jobs: Mapping[str, int]) -> dict[str, Path]:
    """What bounds the compilers. Secrets, because neither changes a byte, so neither may be part of any key."""
    values = {f"graft-job-gb-{build.component.build}": build.memory_gb for build in plan.builds}
    values |= {f"graft-jobs-{name}": count for name, count in jobs.items()}
    files = {name: folder / name for name in values}
    for name, file in files.items():
        file.write_text(str(values[name]), encoding="utf-8")
    return files


class _Steps:
    """Shows a line for each step that really runs, when it ends; what comes from the cache is counted only."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._names: dict[str, str] = {}

    def __call__(self, line: str) -> None:
        match = STEP.match(line)
        if match is None:
            return
        number, rest = match[1], match[2]
        if rest.startswith("[") and not rest.startswith(("[internal]", "[context")):
            self._names[number] = _short(rest)
        elif rest == "CACHED":
            self._names.pop(number, None)
        elif rest.startswith("DONE") and number in self._names:
            self._console.say(f"  {self._names.pop(number)} {rest.removeprefix('DONE ')}")


def _short(step: str) -> str:
    """A step without its mounts: `[foundation 2/4] bash .../install-wheels.sh`."""
    words = re.sub(r"--(mount|network|from)=\S+ *", "", step)
    source = re.search(r"from=(wheels-[a-z0-9-]+)", step)
    return " ".join([*words.replace("/run/graft/scripts/", "").split(), *([source[1]] if source else [])])[:110]


def _failure(done: proc.Completed, target: str, log: Path, jobs: Mapping[str, int]) -> GraftError:
    tail = "\n".join(done.stderr.splitlines()[-proc.TAIL_LINES :])
    if PATCH_STATUS.search(done.stderr) and re.search(r"(?:apply-patches|unpack-tree)\.sh: ", done.stderr):
        return PatchMismatch(
            "a patched tree is not the one that the lock names",
            where=str(log),
            cure="make lock",
            tail=tail,
        )
    if any(words in done.stderr for words in ENGINE_GONE):
        return BuildFailed(
            "the engine went away during the build",
            where=str(log),
            cure="run the same command: finished steps are kept (make engine shows its log)",
            tail=tail,
        )
    said = CAUSE.findall(done.stderr)
    if said:
        step, cause = said[-1]
        name = next((n for number, n in BUILD_STAGE.findall(done.stderr) if number == step), target)
        if killed := KILLED.search(cause):
            return OutOfMemory(
                f"the build of {name} failed: {cause}",
                name,
                int(killed[1]),
                where=str(log),
                cure=f"JOBS={max(1, int(killed[1]) // 2)}, or more memory; the whole output is in that file",
                tail=tail,
            )
        return BuildFailed(
            f"the build of {name} failed: {cause}", where=str(log), cure="the whole output is in that file", tail=tail
        )
    if (step := _killed_step(done.stderr)) is not None:
        # All of the step was killed, the script that would have said so too.
        return OutOfMemory(
            f"the build of {step} was killed, as for memory",
            step,
            jobs.get(step),
            where=str(log),
            cure="fewer JOBS, or more memory; the whole output is in that file",
            tail=tail,
        )
    return BuildFailed(
        f"the build of {target} failed", where=str(log), cure="the whole output is in that file", tail=tail
    )


def _killed_step(output: str) -> str | None:
    """The component whose step ended with SIGKILL."""
    stages = dict(BUILD_STAGE.findall(output))
    for line in output.splitlines():
        match = STEP.match(line)
        if match is not None and match[2].startswith("ERROR") and KILLED_STEP.search(match[2]):
            return stages.get(match[1])
    return None


def _layer(folder: Path, layer: Layer, store: Store) -> None:
    target = folder / layer.context
    for package in layer.packages:
        _link(store.path(package), target / package.file)
    lines = [f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in layer.packages]
    _write(target / "requirements.txt", "".join(lines))


def _tools(folder: Path, plan: Plan, store: Store) -> None:
    """uv alone, out of its locked wheel."""
    with zipfile.ZipFile(store.path(plan.lock.tool("uv"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith("/scripts/uv"))
        target = folder / "tools" / "uv"
        target.parent.mkdir(parents=True)
        data = wheel.read(member)
    target.write_bytes(data)
    _stamp(target, data, 0o755)


def _smoke(paths: Paths, plan: Plan, inputs: Inputs, target: Path) -> None:
    for source in sorted(path for pattern in SMOKE_FILES for path in paths.smoke.glob(pattern)):
        _copy(source, target / source.relative_to(paths.smoke))
    facts = plan.facts()
    _write(target / "facts.json", _json(facts))
    for fact in facts["patches"]:
        _copy(paths.patches / fact["component"] / "tests" / Path(fact["test"]).name, target / fact["test"])
    for component, files in inputs.pristine.items():
        for path, data in files.items():
            _bytes(target / "pristine" / component / path, data)


def _json(data: object) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)


def _copy(source: Path, target: Path) -> None:
    _bytes(target, source.read_bytes())


def _write(target: Path, text: str) -> None:
    _bytes(target, text.encode())


def _bytes(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    _stamp(target, data)


def _stamp(target: Path, data: bytes, mode: int = 0o644) -> None:
    """A fixed mode, and a time that differs with the content, but only below the second.

    BuildKit sends a file of a context again only when its size or time is another one: with one time for all, it
    would go on with the old bytes after an edit that keeps the size. Layers hold whole seconds.
    """
    target.chmod(mode)
    time = CHECKED_MTIME * 1_000_000_000 + int(hashlib.sha256(data).hexdigest()[:7], 16)
    os.utime(target, ns=(time, time))
