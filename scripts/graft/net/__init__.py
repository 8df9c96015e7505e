"""The one door for HTTP.

The host's configuration is honoured as requests does: proxies, no_proxy, extra CAs
(REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, else SSL_CERT_FILE) and .netrc. An address never reaches a message: an
index or mirror may carry credentials, and logs are shared.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
from filelock import FileLock, Timeout
from requests.adapters import HTTPAdapter

from graft.errors import FetchFailed, Interrupted
from graft.hashes import file_sha256

#: Small, because what was read of a chunk is lost with a dropped connection, and a stop is looked for between two.
CHUNK = 1 << 16
#: Seconds to connect, and to wait for the next byte; also how long Ctrl-C may wait for a stalled server.
TIMEOUT = (10.0, 20.0)
QUESTION_TIMEOUT = (4.0, 6.0)
ATTEMPTS = 6
#: Worth another try; every other 4xx is final.
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
DEFAULT_PORTS = 32
LOCK_POLL_SECONDS = 0.5
WRONG_BYTES_CURE = "nothing was kept; if upstream really replaced the file, look at why, then run: make lock"

Session = requests.Session
OnBytes = Callable[[int], None]


class Gone(FetchFailed):
    """The server says that it does not have the file."""


class Stopped(Exception):
    """Raised inside a worker when the whole fetch was asked to stop."""


@dataclass(frozen=True)
class Expected:
    """What a file must be: lower-case hex sha256, and its size in bytes."""

    sha256: str
    size: int


def session() -> Session:
    """A session with a connection pool; retries are ours, because a body must be resumed."""
    made = Session()
    adapter = HTTPAdapter(pool_maxsize=DEFAULT_PORTS, pool_connections=DEFAULT_PORTS)
    made.mount("http://", adapter)
    made.mount("https://", adapter)
    bundle = os.environ.get("SSL_CERT_FILE")
    asked = any(os.environ.get(name) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
    if bundle and not asked and Path(bundle).is_file():
        made.verify = bundle
    return made


def get(client: Session, url: str, *, accept: str, what: str) -> requests.Response | None:
    """The document at `url`, or None when the server says 404 or 410. Raises FetchFailed."""
    response = _with_retries(lambda: _get(client, url, {"Accept": accept}), what)
    if response.status_code in (404, 410):
        return None
    _refuse(response, what)
    return response


def unanswered(client: Session, url: str) -> str | None:
    """Why nobody answers at `url`, in a few words without the address; None when somebody does, whatever he says.

    One question and no second try: for messages, where waiting would say no more.
    """
    try:
        client.head(url, timeout=QUESTION_TIMEOUT, allow_redirects=False).close()
    except requests.RequestException as problem:
        return _reason(problem)
    return None


def download(
    client: Session,
    url: str,
    target: Path,
    expected: Expected,
    *,
    what: str,
    on_bytes: OnBytes = lambda count: None,
    stop: threading.Event | None = None,
) -> None:
    """Fetch `url` into `target`, resuming `<target>.part`, and keep it only when hash and size are right.

    on_bytes gets the number of new bytes (negative when a broken part is thrown away).
    `file:` addresses are read from disk. Two processes may ask for one target: the second waits.
    Raises FetchFailed: refused, gone after all attempts, wrong bytes, disk full.
    """
    part = target.with_name(target.name + ".part")
    with _disk_errors(what):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(Path(f"{target}.lock"), stop):
            if target.is_file() and target.stat().st_size == expected.size:
                on_bytes(expected.size)
                return
            resumed = part.is_file()
            _fill(client, url, part, expected, what, on_bytes, stop)
            fits = _fits(part, expected)
            if resumed and not fits:
                # The start may be what a crash or another version of the file left behind: once more, whole.
                on_bytes(-part.stat().st_size)
                part.unlink()
                _fill(client, url, part, expected, what, on_bytes, stop)
                fits = _fits(part, expected)
            if not fits:
                raise _wrong_bytes(part, expected, what)
            part.replace(target)


def download_whole(client: Session, url: str, target: Path, sha256: str, *, what: str) -> None:
    """Fetch a file of which only the hash (sha256, hex) is known, at once and whole; one that is there is kept.

    Raises FetchFailed: refused, gone after all attempts, wrong bytes, disk full.
    """
    part = target.with_name(target.name + ".part")
    with _disk_errors(what):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(Path(f"{target}.lock"), None):
            if target.is_file() and file_sha256(target) == sha256:
                return
            parts = urlsplit(url)
            if parts.scheme == "file":
                _copy(Path(unquote(parts.path)), part, what, lambda count: None, 0)
            else:
                _whole(client, url, part, what)
            found = file_sha256(part)
            if found != sha256:
                part.unlink()
                raise FetchFailed(
                    f"{what}: wrong bytes: sha256 {found}; the recipe says {sha256}", cure=WRONG_BYTES_CURE
                )
            part.replace(target)


def _whole(client: Session, url: str, part: Path, what: str) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _get(client, url, {"Accept-Encoding": "identity"}, stream=True) as response:
                if response.status_code in TRANSIENT:
                    raise _Transient(f"HTTP {response.status_code}")
                _refuse(response, what)
                with part.open("wb") as sink:
                    for chunk in response.iter_content(CHUNK):
                        sink.write(chunk)
                if _announced(response) not in (None, part.stat().st_size):
                    raise _Transient("the connection was closed early")
                return
        except (requests.RequestException, _Transient) as problem:
            if attempt == ATTEMPTS:
                raise FetchFailed(
                    f"{what}: gave up after {ATTEMPTS} attempts ({_reason(problem)})",
                    cure="check the network, then run the same command",
                ) from None
            _sleep(attempt, None)


@contextlib.contextmanager
def _locked(path: Path, stop: threading.Event | None) -> Iterator[None]:
    """Hold the lock file; while another process has it, look whether we were asked to stop."""
    lock = FileLock(str(path))
    while True:
        try:
            lock.acquire(timeout=LOCK_POLL_SECONDS)
            break
        except Timeout:
            if stop is not None and stop.is_set():
                raise Stopped from None
    try:
        yield
    finally:
        lock.release()


def _fill(
    client: Session,
    url: str,
    part: Path,
    expected: Expected,
    what: str,
    on_bytes: OnBytes,
    stop: threading.Event | None,
) -> None:
    """Bring `part` to the expected length; a dropped connection goes on where it stopped."""
    have = part.stat().st_size if part.is_file() else 0
    if have > expected.size:
        part.unlink()
        have = 0
    on_bytes(have)
    parts = urlsplit(url)
    if parts.scheme == "file":
        _copy(Path(unquote(parts.path)), part, what, on_bytes, have)
        return
    failures, restarts = 0, 0
    while have < expected.size:
        try:
            have = _append(client, url, part, have, expected, what, on_bytes, stop)
        except _NoSuchRange:
            # Once: our part was too long. Twice: the server's file ends before the locked size.
            have, restarts = 0, restarts + 1
            if restarts > 1:
                raise FetchFailed(
                    f"{what}: wrong bytes: the server's file is shorter than the locked {expected.size}",
                    cure=WRONG_BYTES_CURE,
                ) from None
        except (requests.RequestException, _Transient) as problem:
            got = part.stat().st_size if part.is_file() else 0
            failures = 0 if got > have else failures + 1
            have = got
            if failures >= ATTEMPTS:
                raise FetchFailed(
                    f"{what}: gave up after {ATTEMPTS} attempts ({_reason(problem)})",
                    cure="check the network, then run the same command: it resumes",
                ) from None
            _sleep(failures, stop)


class _Transient(Exception):
    """A status worth another try."""


class _NoSuchRange(Exception):
    """The server has nothing after what we hold."""


def _append(
    client: Session,
    url: str,
    part: Path,
    have: int,
    expected: Expected,
    what: str,
    on_bytes: OnBytes,
    stop: threading.Event | None,
) -> int:
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with _get(client, url, headers, stream=True) as response:
        if response.status_code in TRANSIENT:
            raise _Transient(f"HTTP {response.status_code}")
        if response.status_code == 416 and have:
            part.unlink(missing_ok=True)
            on_bytes(-have)
            raise _NoSuchRange
        _refuse(response, what)
        if have and response.status_code != 206:
            on_bytes(-have)
            have = 0
        announced = _announced(response)
        if announced not in (None, expected.size - have):
            part.unlink(missing_ok=True)
            raise FetchFailed(
                f"{what}: wrong bytes: the server has {have + (announced or 0)}, the lock says {expected.size}",
                cure=WRONG_BYTES_CURE,
            )
        with part.open("r+b" if have else "wb") as sink:
            sink.seek(have)
            for chunk in response.iter_content(CHUNK):
                if stop is not None and stop.is_set():
                    raise Stopped
                sink.write(chunk)
                have += len(chunk)
                on_bytes(len(chunk))
                if have > expected.size:
                    break
    if have < expected.size:
        raise _Transient("the connection was closed early")
    return have


def _announced(response: requests.Response) -> int | None:
    """How many bytes the body will have, where the server says so and does not encode it."""
    length = response.headers.get("Content-Length", "")
    encoded = response.headers.get("Content-Encoding", "identity") != "identity"
    return int(length) if length.isdecimal() and not encoded else None


def _fits(part: Path, expected: Expected) -> bool:
    return part.stat().st_size == expected.size and file_sha256(part) == expected.sha256


def _wrong_bytes(part: Path, expected: Expected, what: str) -> FetchFailed:
    """The error for a part that is whole and wrong; the part is removed."""
    size, digest = part.stat().st_size, file_sha256(part)
    part.unlink()
    return FetchFailed(
        f"{what}: wrong bytes: sha256 {digest}, {size} bytes; the lock says {expected.sha256}, {expected.size} bytes",
        cure=WRONG_BYTES_CURE,
    )


def _copy(source: Path, part: Path, what: str, on_bytes: OnBytes, have: int) -> None:
    try:
        with source.open("rb") as stream, part.open("wb") as sink:
            on_bytes(-have)
            while chunk := stream.read(CHUNK):
                sink.write(chunk)
                on_bytes(len(chunk))
    except FileNotFoundError as problem:
        raise FetchFailed(f"{what}: the index names a local file that does not exist") from problem


def _get(client: Session, url: str, headers: dict[str, str], stream: bool = False) -> requests.Response:
    return client.get(url, headers=headers, timeout=TIMEOUT, stream=stream)


def _with_retries(call: Callable[[], requests.Response], what: str) -> requests.Response:
    for attempt in range(ATTEMPTS):
        try:
            response = call()
            if response.status_code not in TRANSIENT:
                return response
            reason = f"HTTP {response.status_code}"
        except requests.RequestException as problem:
            reason = _reason(problem)
        if attempt < ATTEMPTS - 1:
            _sleep(attempt, None)
    raise FetchFailed(
        f"{what}: gave up after {ATTEMPTS} attempts ({reason})",
        cure="check the network, then run the same command again",
    )


def _refuse(response: requests.Response, what: str) -> None:
    status = response.status_code
    if status >= 400:
        kind = Gone if status in (404, 410) else FetchFailed
        raise kind(f"{what}: the server answers HTTP {status}", cure=_status_cure(status))


def _status_cure(status: int) -> str:
    if status in (401, 403):
        return "check the credentials this host has for the index (.netrc, pip or uv configuration)"
    return "the server no longer has it: choose another version or mirror, then run: make lock"


def _sleep(attempt: int, stop: threading.Event | None) -> None:
    """Exponential backoff with jitter: 0.5 s doubling up to 15 s."""
    seconds = min(15.0, 0.5 * 2**attempt) * random.uniform(0.7, 1.3)
    if stop is None:
        time.sleep(seconds)
    elif stop.wait(seconds):
        raise Stopped


def _reason(problem: Exception) -> str:
    """Why a request failed, without the address in it."""
    if isinstance(problem, _Transient):
        return str(problem)
    if isinstance(problem, requests.exceptions.SSLError):
        return "TLS: the server's certificate was not accepted"
    if isinstance(problem, requests.exceptions.ProxyError):
        return "the proxy refused"
    if isinstance(problem, requests.Timeout):
        return "timed out"
    return "connection failed" if isinstance(problem, requests.ConnectionError) else type(problem).__name__


@contextlib.contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except requests.RequestException:
        # An OSError by inheritance, but not one of the disk.
        raise
    except KeyboardInterrupt as interrupt:
        raise Interrupted(f"interrupted while fetching {what}") from interrupt
    except OSError as problem:
        raise FetchFailed(
            f"{what}: cannot be written: {problem.strerror}",
            cure="free disk space (make clean), then run the same command: it resumes",
        ) from problem
