"""One call of buildx: what the engine is asked for, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graft import proc
from graft.build.log import Steps, failure
from graft.console import Console
from graft.plan import Plan
from graft.render import Rendered
from graft.unlocked import UnlockedPlan


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
        if self.output:
            # Files alone are no image, and have no id.
            words += ["--output", f"type=local,dest={self.output}"]
        else:
            words += ["--metadata-file", str(self.metadata)]
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
    replaced = [f"built-{name}" for name in built]
    command = command_of(
        plan, rendered, folder, docker, target, secrets_of(plan, folder, jobs or {}), no_cache, replaced
    )
    command.metadata.unlink(missing_ok=True)
    run(command, env, console, log, jobs or {})
    return image_id(command.metadata)


def by_hand(plan: Plan | UnlockedPlan, rendered: Rendered, folder: Path) -> str:
    """The command that builds the rendered file without Graft."""
    return proc.quoted(command_of(plan, rendered, folder, Path("docker"), "runtime", {}).argv)


def command_of(
    plan: Plan | UnlockedPlan,
    rendered: Rendered,
    folder: Path,
    docker: Path,
    target: str,
    secrets: Mapping[str, Path],
    no_cache: bool = False,
    replaced: Iterable[str] = (),
) -> BuildCommand:
    """replaced: stages that folders of these names take the place of."""
    return BuildCommand(
        docker,
        folder / "Dockerfile",
        folder / "main",
        # A context with the name of a stage takes its place, and nothing that only the stage needs is built.
        {name: folder / name for name in (*rendered.contexts, *replaced)},
        target,
        plan.epoch,
        folder / f"{target}.json",
        secrets,
        no_cache,
    )


def secrets_of(plan: Plan, folder: Path, jobs: Mapping[str, int], sharing: Iterable[str] = ()) -> dict[str, Path]:
    """What bounds the compilers, and which components share what they compile.

    Secrets, because none of it changes a byte, so none may be part of any key.
    """
    values = {f"graft-job-gb-{build.component.build}": str(build.memory_gb) for build in plan.builds}
    values |= {f"graft-jobs-{name}": str(count) for name, count in jobs.items()}
    values |= {f"graft-ccache-{name}": "yes" for name in sharing}
    files = {name: folder / name for name in values}
    for name, file in files.items():
        file.write_text(values[name], encoding="utf-8")
    return files


def run(command: BuildCommand, env: Mapping[str, str], console: Console, log: Path, jobs: Mapping[str, int]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    target = command.target
    done = proc.run(command.argv, env=env, log=log, on_line=Steps(console), check=False, what=f"build of {target}")
    if done.rc != 0:
        raise failure(done, target, log, jobs)
