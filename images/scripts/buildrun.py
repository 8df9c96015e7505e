"""One component's build, watched: it may use what it was given, write where it was told, and download nothing.

Used by build-python.py and build-make.py, which lie beside it. Every refusal ends with the cause in a few lines: of a
long log only the end is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DEFAULT_JOB_GB = 4
#: What a build has no business with. /src holds its tree and, read-only, those of others.
WATCHED = "/opt:/usr:/etc:/src:/root:/var:/home"
#: How programs say what they could not download; the group is what they wanted.
WANTED = (
    r"unable to access '([^']+)'",
    r"fatal: repository '([^']+)'",
    r"Failed to clone repository: '([^']+)'",
    r"[Dd]ownloading '([^']+)' failed",
    r"Failed to download [`'\"]?([^`'\" ]+)",
    r"HTTPS?ConnectionPool\(host='([^']+)'",
    r"No matching distribution found for (.+)",
    r"Could not find a version that satisfies the requirement (\S+)",
    r"Could not resolve host(?:name)?:? (\S+)",
)
#: How compilers and build systems begin the line that says what is wrong.
CAUSES = (
    r"^\S+?[:(]\d+[:)].*?\b(?:fatal )?error\b",
    r"\b(?:nvcc|ptxas|cicc|nvlink|cudafe\+\+)\b ?(?:fatal|error)",
    r"^\s*(?:fatal )?error(?:\[E\d+\])?: ",
    r"^CMake Error",
    r"undefined reference to|cannot find -l",
    r"^\w*(?:Error|Exception)\b: ",
    r"^g?make(?:\[\d+\])?: \*\*\*",
    r"^\s*ninja: error",
)
#: In front of what a build took, for Graft.
MEASURED = "graft-measured: "
#: Where compilers are called through ccache. Fixed, because build systems write it down.
COMPILERS = Path("/tmp/graft-compilers")
#: Entries that Graft brought from the cache that machines share, read-only; and those that it takes there.
SHARED, NEW = Path("/ccache-shared"), Path("/ccache-new")
DRIVERS = ("gcc", "g++", "cc", "c++", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++")
#: nvcc calls the compilers of the host itself, past ccache. ccache knows only the short forms of two options.
LAUNCH = """#!/bin/bash
export PATH={path}
words=()
for word in "$@"; do
    case $word in
        --generate-dependencies-with-compile) words+=(-MD) ;;
        --dependency-output) words+=(-MF) ;;
        *) words+=("$word") ;;
    esac
done
exec ccache "${{words[@]}}"
"""
OUT_OF_MEMORY = re.compile(r"\bKilled\b|signal 9|std::bad_alloc|Cannot allocate memory")
#: Of what Python raised last: a build may try a module that it can do without.
RAISED = re.compile(r"\w*(?:Error|Exception)\b: ")
NOT_THERE = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")
MAX_LINES = 3
GRACE_SECONDS = 1.0


class BuildError(Exception):
    """The build failed, or what it made or did is not what was asked for."""


def run(argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path, own: Iterable[Path]) -> list[str]:
    """The lines that a build printed, also shown as they come. own: the folders that it may write to.

    Raises BuildError when it fails, wants something from the network, or writes elsewhere.
    """
    watched = [Path(name) for name in os.environ.get("GRAFT_WATCH", WATCHED).split(":") if name]
    before = _files(watched, own)
    started = time.monotonic()
    with _Network() as network:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env={**env, **network.env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        network.on_request = lambda: _end_soon(process)
        lines = []
        assert process.stdout is not None
        for raw in process.stdout:
            lines.append(raw.decode("utf-8", "replace").rstrip("\n"))
            print(lines[-1], file=sys.stderr, flush=True)
        rc = process.wait()
        wanted = network.wanted
    measured(time.monotonic() - started, env.get("CCACHE_STATSLOG"))
    if wanted or rc != 0:
        raise BuildError(_why(lines, rc, wanted))
    written = [path for path, time in _files(watched, own).items() if before.get(path) != time]
    if written:
        more = f" and {len(written) - 1} more" if len(written) > 1 else ""
        raise BuildError(f"it wrote outside of its output: {min(written)}{more}")
    return lines


def jobs() -> int:
    """Compilers at once: as many as Graft says, else as there are cores and as free memory holds."""
    if given := os.environ.get("GRAFT_JOBS"):
        return int(given)
    job = int(os.environ.get("GRAFT_JOB_GB") or DEFAULT_JOB_GB) << 30
    available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    memory = int(available[1]) * 1024 if available else job
    return max(1, min(len(os.sched_getaffinity(0)), memory // job))


def measured(seconds: float, statslog: str | None = None) -> None:
    """One line with what a build took: when it began (Unix time), seconds, jobs, GiB of its largest process, objects
    from ccache and not. The order of lines in an engine's log says nothing of what ran beside what."""
    facts: dict[str, float] = {
        "started": round(time.time() - seconds, 1),
        "seconds": round(seconds, 1),
        "jobs": jobs(),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
    }
    if statslog is not None and Path(statslog).exists():
        facts |= counted(Path(statslog).read_text(encoding="utf-8", errors="replace"))
    print(f"{MEASURED}{json.dumps(facts)}", file=sys.stderr, flush=True)


def counted(statslog: str) -> dict[str, int]:
    """Objects by what ccache did: found (in the cache that machines share, too), compiled, and could not look for.

    Links and preprocessing are no objects. What one call of a compiler did begins with a line `# its source`.
    """
    found = {"hits": 0, "misses": 0, "uncached": 0, "shared": 0}
    for call in re.split(r"(?m)^#.*$", statslog):
        words = set(call.split())
        is_hit = not words.isdisjoint({"direct_cache_hit", "preprocessed_cache_hit"})
        found["hits"] += is_hit
        # A damaged entry was found there as well, and is a miss.
        found["shared"] += is_hit and "remote_storage_hit" in words
        found["misses"] += "cache_miss" in words
        found["uncached"] += any(word.startswith(("unsupported_", "could_not_use_", "bad_compiler_")) for word in words)
    return found


def ccache_settings(env: Mapping[str, str], statslog: Path) -> dict[str, str]:
    """How ccache works in a build. Its key sees programs and no dates: a compiler is what its programs are."""
    settings = {
        "CCACHE_COMPILERCHECK": f"string:{compiler_id(env)}",
        "CCACHE_MAXSIZE": "4G",
        "CCACHE_STATSLOG": str(statslog),
    }
    if os.environ.get("GRAFT_CCACHE_SHARED"):
        NEW.mkdir(parents=True, exist_ok=True)
        settings["CCACHE_REMOTE_STORAGE"] = f"file:{SHARED}|read-only file:{NEW}"
        # Also what this machine compiled before it shared anything.
        settings["CCACHE_RESHARE"] = "1"
    return settings


def through_ccache(env: Mapping[str, str], tree: Path, statslog: Path) -> dict[str, str]:
    """The environment with every compiler behind ccache; as it is where there is no CCACHE_DIR or no ccache.

    Its key does not see the tree's place: paths below it are relative.
    """
    ccache = shutil.which("ccache", path=env["PATH"])
    if not env.get("CCACHE_DIR") or ccache is None:
        return dict(env)
    shutil.rmtree(COMPILERS, ignore_errors=True)
    COMPILERS.mkdir(parents=True)
    for name in DRIVERS:
        if shutil.which(name, path=env["PATH"]):
            (COMPILERS / name).symlink_to(ccache)
    launch = COMPILERS / "launch"
    launch.write_text(LAUNCH.format(path=env["PATH"]))
    launch.chmod(0o755)
    found = {
        **env,
        "PATH": f"{COMPILERS}:{env['PATH']}",
        "CCACHE_BASEDIR": str(tree),
        "CCACHE_NOHASHDIR": "1",
        **ccache_settings(env, statslog),
        "CMAKE_CUDA_COMPILER_LAUNCHER": str(launch),
    }
    if toolkit := env.get("CUDA_HOME"):
        found["PYTORCH_NVCC"] = f"{launch} {toolkit}/bin/nvcc"
    return found


def compiler_id(env: Mapping[str, str]) -> str:
    """The hash of all programs that make an object; ccache by itself looks at the driver only."""
    programs = []
    if toolkit := env.get("CUDA_HOME"):
        names = ("nvcc", "nvcc.profile", "cudafe++", "ptxas", "fatbinary", "nvlink")
        programs = [Path(toolkit) / "bin" / name for name in names] + [Path(toolkit) / "nvvm/bin/cicc"]
    for driver, name in (("gcc", "cc1"), ("g++", "cc1plus"), ("gcc", "as"), ("gcc", "collect2")):
        found = shutil.which(driver, path=env["PATH"])
        if found is None:
            continue
        said = subprocess.run([found, f"-print-prog-name={name}"], env=dict(env), capture_output=True, text=True)
        answer = Path(said.stdout.strip() or name)
        programs.append(answer if answer.is_absolute() else Path(shutil.which(answer, path=env["PATH"]) or answer))
    digest = hashlib.sha256()
    for program in programs:
        # What a toolkit does not have makes no object either.
        digest.update(hashlib.sha256(program.read_bytes() if program.is_file() else b"").digest())
    return digest.hexdigest()


def out_of_memory(said: str) -> str:
    """What a build that was killed for memory says; Graft reads the number of jobs in it."""
    return f"it ran out of memory with {jobs()} jobs (fewer JOBS need less): {said}"


def cause(lines: Sequence[str]) -> str:
    """The lines of a failed build's output that say what is wrong: the first ones of the most telling kind."""
    found: list[str] = []
    for pattern in CAUSES:
        found = [line.strip()[:300] for line in lines if re.search(pattern, line)]
        if found:
            break
    said = list(dict.fromkeys(found))[:MAX_LINES] or [line.strip()[:300] for line in lines if line.strip()][-1:]
    return "; ".join(said) or "it printed nothing"


def _why(lines: Sequence[str], rc: int, asked: Sequence[str]) -> str:
    # What a program says itself is a whole address; what it asked for may be a host alone.
    said = [match[1] for pattern in WANTED for line in lines if (match := re.search(pattern, line))]
    if wanted := (said or list(asked)):
        return (
            f"it wanted to download {wanted[0]}, and a build has no network: make that a component of the recipe, and "
            "hand it over in `sources`, or add what it asks for to the build requirements"
        )
    if any(OUT_OF_MEMORY.search(line) for line in lines) or rc in (-9, 137):
        return out_of_memory(cause(lines))
    said = cause(lines)
    last = next((line.strip() for line in reversed(lines) if RAISED.match(line.strip())), "")
    if (absent := NOT_THERE.match(last)) and last in said:
        return f"it wanted to import {absent[1]}, which is not there: name its distribution in `build_requires`"
    return f"it ended with {rc}: {said}"


def _end_soon(process: subprocess.Popen[bytes]) -> None:
    # The program that was refused may still say what it wanted: the network knows the host alone.
    timer = threading.Timer(GRACE_SECONDS, _end, [process])
    timer.daemon = True
    timer.start()


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def _files(folders: Iterable[Path], own: Iterable[Path]) -> dict[str, int]:
    """File -> the time of its last change, which no program can set."""
    mine = {str(path) for path in own}
    found: dict[str, int] = {}
    for folder in folders:
        for at, names, files in os.walk(folder):
            names[:] = [name for name in names if f"{at}/{name}" not in mine]
            for name in files:
                path = f"{at}/{name}"
                try:
                    found[path] = os.lstat(path).st_ctime_ns
                except FileNotFoundError:
                    continue
    return found


class _Network:
    """Stands where a proxy would: it lets nothing through, and remembers what was asked for."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.on_request = lambda: None
        network = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                words = self.rfile.readline(8192).decode("latin-1").split()
                if len(words) < 2:
                    return
                network.wanted.append(words[1].removesuffix(":443"))
                self.wfile.write(b"HTTP/1.1 403 a build has no network\r\nContent-Length: 0\r\n\r\n")
                network.on_request()

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def env(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        return {**{name: address for n in names for name in (n, n.upper())}, "no_proxy": "", "NO_PROXY": ""}

    def __enter__(self) -> _Network:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
