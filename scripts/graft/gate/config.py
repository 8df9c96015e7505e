"""The test `image-config`: what an image says of itself is the plan's, and nothing of this host or secret is in it.

The configuration and the history come from the engine. The texts that no package brought are read in the image and
searched here (images/smoke/lib/collect.py), because what must not be in them must not get into a container either.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graft.gate.hostvalues import Finder
from graft.gate.receipt import Check, TestResult, Verdict
from graft.gate.tests import Ended, SmokeTest, forced_end

if TYPE_CHECKING:
    from docker import DockerClient

ID = "image-config"
COLLECTOR = "lib/collect.py"
SECONDS = 300.0
#: Settings that change how a container runs; none of them is the plan's.
UNSET = ("Cmd", "User", "ExposedPorts", "Volumes", "Healthcheck", "OnBuild", "Shell", "StopSignal")
LISTED = 20


@dataclass(frozen=True)
class Expected:
    """The configuration that the plan gives the image."""

    env: Mapping[str, str]
    labels: Mapping[str, str]
    entrypoint: Sequence[str]
    workdir: str


def image_config(client: DockerClient, candidate: str, expected: Expected, finder: Finder) -> SmokeTest:
    """The test of one candidate: it runs in the pool with the others, and is judged here."""

    def judged(test: SmokeTest, ended: Ended) -> TestResult:
        api: Any = client.api
        checks = [*check_config(api.inspect_image(candidate), api.history(candidate), expected, finder)]
        forced = forced_end(ended)
        if forced is None and ended.exit_code != 0:
            forced = "crash", f"exit {ended.exit_code}"
        if forced is None:
            checks += check_files(ended.stdout, finder)
        red = [check.id for check in checks if check.verdict == "fail"]
        said: Verdict = forced[0] if forced else "fail" if red else "pass"
        detail = "; ".join([*([forced[1]] if forced else []), *red])
        return TestResult(
            id=test.id,
            tier=test.tier,
            verdict=said,
            seconds=round(ended.seconds, 1),
            detail=detail,
            checks=tuple(checks),
        )

    return SmokeTest(ID, COLLECTOR, SECONDS, judged=judged)


def check_config(
    attrs: Mapping[str, Any], history: Sequence[Mapping[str, Any]], expected: Expected, finder: Finder
) -> Iterator[Check]:
    """attrs, history: as the engine's API gives them. No value is shown, since the wrong one may be a secret."""
    config = attrs.get("Config") or {}
    env = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
    yield _equal("env", env, expected.env)
    yield _equal("labels", config.get("Labels") or {}, expected.labels)
    wrong = []
    if list(config.get("Entrypoint") or ()) != list(expected.entrypoint):
        wrong.append(f"the entrypoint is not {' '.join(expected.entrypoint)}")
    if (config.get("WorkingDir") or "") != expected.workdir:
        wrong.append(f"the working directory is not {expected.workdir}")
    wrong += [f"{name} is set" for name in UNSET if config.get(name)]
    yield _check(
        "settings", wrong, f"entrypoint {' '.join(expected.entrypoint)}, no user, port, volume or health check"
    )
    texts = {
        **{f"the value of {name}": f"{name}={value}" for name, value in env.items()},
        **{f"label {name}": f"{name}={value}" for name, value in (config.get("Labels") or {}).items()},
        **{name.lower(): json.dumps(config.get(name)) for name in ("Entrypoint", *UNSET)},
        **{f"the image's {name.lower()}": str(attrs.get(name) or "") for name in ("Author", "Comment")},
    }
    yield _search("configuration", texts, finder)
    steps = {
        f"step {number} from the base": f"{step.get('CreatedBy') or ''}\n{step.get('Comment') or ''}"
        for number, step in enumerate(reversed(history), 1)
    }
    yield _search("history", steps, finder)


def check_files(stdout: str, finder: Finder) -> Iterator[Check]:
    """The texts that the collector printed. Raises nothing: output that is cut off or damaged is a failed check."""
    texts: dict[str, str] = {}
    too_big: list[str] = []
    ended = None
    for line in stdout.splitlines():
        try:
            said = json.loads(line)
            if "files" in said:
                ended = said["files"]
            elif "data" in said:
                texts[said["file"]] = zlib.decompress(base64.b64decode(said["data"])).decode("utf-8", "replace")
            else:
                too_big.append(f"{said['file']} has {said['bytes']} bytes: too big to be searched")
        except (ValueError, KeyError, TypeError, binascii.Error, zlib.error):
            # Counted below: there are fewer texts than the last line says.
            continue
    complete = ended == len(texts) + len(too_big)
    came = f"{len(texts)} texts of the image came, it says {ended}"
    yield _check("files-read", [*too_big, *([] if complete else [came])], came)
    # A name may be what must not be said as well.
    named = {name if not finder.find(name) else "the name of a file": f"{name}\n{text}" for name, text in texts.items()}
    yield _search("files", named, finder)


def _equal(id: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> Check:
    wrong = [f"{name} is not in the plan" for name in sorted(found.keys() - wanted.keys())]
    wrong += [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    wrong += [f"{name} has another value" for name in sorted(found.keys() & wanted) if found[name] != wanted[name]]
    return _check(id, wrong, f"{len(found)} as planned")


def _search(id: str, texts: Mapping[str, str], finder: Finder) -> Check:
    found = [f"{what} in {where}" for where, text in texts.items() for what in finder.find(text)]
    looked_for = f"{len(texts)} texts searched for {len(finder.names)} values of this host and for secrets"
    return _check(id, found, looked_for)


def _check(id: str, wrong: Iterable[str], good: str) -> Check:
    wrong = list(wrong)
    more = f"; {len(wrong) - LISTED} more" if wrong[LISTED:] else ""
    return Check(id=id, verdict="fail" if wrong else "pass", detail="; ".join(wrong[:LISTED]) + more or good)
