"""The one door for HTTP: resuming, retrying, checking, and what an error says."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from web import Answer, Web

from graft import net
from graft.errors import FetchFailed, GraftError

BODY = random.Random(7).randbytes(3_000_000)
SCRIPTS = Path(__file__).parents[2] / "scripts"


def expected(body: bytes = BODY) -> net.Expected:
    return net.Expected(hashlib.sha256(body).hexdigest(), len(body))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between attempts, no proxy of the host."""
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def get(url: str, target: Path, body: bytes = BODY) -> list[int]:
    """Download and return the byte counts that were reported."""
    counts: list[int] = []
    net.download(net.session(), url, target, expected(body), what="x.whl", on_bytes=counts.append)
    return counts


def refused(url: str, target: Path) -> FetchFailed:
    """The error of a download; it names the file, says what to do, and holds no address."""
    with pytest.raises(FetchFailed) as caught:
        get(url, target)
    problem = caught.value
    said = f"{problem.as_dict()} {problem.__cause__!r}"
    for part in ("127.0.0.1", "http:", "//", "secret", "graft-user"):
        assert part not in said
    assert problem.exit_code == 4
    assert problem.what.startswith("x.whl: ")
    assert problem.cure
    assert not target.exists()
    return problem


@pytest.mark.parametrize("answer", [Answer(BODY), Answer(BODY, ranges=False), Answer(BODY, sized=False)])
def test_a_file_is_fetched_whole(server: Web, tmp_path: Path, answer: Answer) -> None:
    target = tmp_path / "deep" / "x.whl"
    counts = get(server.serve("/x", answer), target)
    assert target.read_bytes() == BODY
    assert sum(counts) == len(BODY)
    assert not target.with_name("x.whl.part").exists()
    assert len(server.seen) == 1


def test_a_file_that_is_there_is_not_asked_for(server: Web, tmp_path: Path) -> None:
    url = server.serve("/x", Answer(BODY))
    get(url, tmp_path / "x.whl")
    assert sum(get(url, tmp_path / "x.whl")) == len(BODY)
    assert len(server.seen) == 1


def test_a_dropped_connection_goes_on_where_it_stopped(server: Web, tmp_path: Path) -> None:
    url = server.serve("/x", Answer(BODY, cut=1_000_000), Answer(BODY, cut=900_000), Answer(BODY))
    assert sum(get(url, tmp_path / "x.whl")) == len(BODY)
    assert (tmp_path / "x.whl").read_bytes() == BODY
    first, *later = server.ranges("/x")
    assert first is None
    starts = [int(str(header).removeprefix("bytes=").removesuffix("-")) for header in later]
    assert len(starts) == 2
    assert 0 < starts[0] < starts[1] <= 1_900_000


def test_without_ranges_a_dropped_download_starts_again(server: Web, tmp_path: Path) -> None:
    url = server.serve("/x", Answer(BODY, cut=1_200_000, ranges=False), Answer(BODY, ranges=False))
    assert sum(get(url, tmp_path / "x.whl")) == len(BODY)
    assert (tmp_path / "x.whl").read_bytes() == BODY


def test_a_part_of_an_earlier_run_is_resumed(server: Web, tmp_path: Path) -> None:
    (tmp_path / "x.whl.part").write_bytes(BODY[:2_000_000])
    assert get(server.serve("/x", Answer(BODY)), tmp_path / "x.whl")[0] == 2_000_000
    assert server.ranges("/x") == ["bytes=2000000-"]
    assert (tmp_path / "x.whl").read_bytes() == BODY


def test_a_complete_part_needs_no_request(server: Web, tmp_path: Path) -> None:
    (tmp_path / "x.whl.part").write_bytes(BODY)
    get(server.serve("/x", Answer(status=404)), tmp_path / "x.whl")
    assert (tmp_path / "x.whl").read_bytes() == BODY
    assert server.seen == []


@pytest.mark.parametrize("part", [b"<html>" * 1000, b"\0" * len(BODY), BODY + b"more"])
def test_a_damaged_part_is_fetched_again_whole(server: Web, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "x.whl.part").write_bytes(part)
    counts = get(server.serve("/x", Answer(BODY)), tmp_path / "x.whl")
    assert (tmp_path / "x.whl").read_bytes() == BODY
    assert sum(counts) == len(BODY)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_tried_again(server: Web, tmp_path: Path, status: int) -> None:
    get(server.serve("/x", Answer(b"busy", status), Answer(b"busy", status), Answer(BODY)), tmp_path / "x.whl")
    assert (tmp_path / "x.whl").read_bytes() == BODY
    assert len(server.seen) == 3


def test_lasting_trouble_ends_after_all_attempts(server: Web, tmp_path: Path) -> None:
    problem = refused(server.serve("/x", Answer(status=503)), tmp_path / "x.whl")
    assert problem.what == f"x.whl: gave up after {net.ATTEMPTS} attempts (HTTP 503)"
    assert len(server.seen) == net.ATTEMPTS


def test_attempts_are_spaced_by_a_growing_pause(server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    monkeypatch.setattr(time, "sleep", pauses.append)
    refused(server.serve("/x", Answer(status=503)), tmp_path / "x.whl")
    assert len(pauses) == net.ATTEMPTS - 1
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]
    assert max(pauses) <= 15


@pytest.mark.parametrize(
    ("status", "cure"), [(404, "make lock"), (410, "make lock"), (401, "credentials"), (403, "credentials")]
)
def test_a_refusal_is_final(server: Web, tmp_path: Path, status: int, cure: str) -> None:
    problem = refused(server.serve("/x", Answer(b"no", status)), tmp_path / "x.whl")
    assert problem.what == f"x.whl: the server answers HTTP {status}"
    assert cure in str(problem.cure)
    assert isinstance(problem, net.Gone) == (status in (404, 410))
    assert len(server.seen) == 1


def test_other_bytes_of_the_same_length_are_refused(server: Web, tmp_path: Path) -> None:
    other = BODY[:-1] + bytes([BODY[-1] ^ 1])
    problem = refused(server.serve("/x", Answer(other)), tmp_path / "x.whl")
    assert hashlib.sha256(other).hexdigest() in problem.what
    assert expected().sha256 in problem.what
    assert not (tmp_path / "x.whl.part").exists()


@pytest.mark.parametrize("body", [BODY + b"more", BODY[:-1], b"<html>please log in</html>", b""])
@pytest.mark.parametrize("sized", [True, False])
def test_a_body_of_another_length_is_refused(server: Web, tmp_path: Path, body: bytes, sized: bool) -> None:
    url = server.serve("/x", Answer(body, kind="text/html", sized=sized))
    problem = refused(url, tmp_path / "x.whl")
    if sized:
        assert f"wrong bytes: the server has {len(body)}, the lock says {len(BODY)}" in problem.what
        assert len(server.seen) == 1
        assert not (tmp_path / "x.whl.part").exists()
    server.serve("/x", Answer(BODY))
    get(url, tmp_path / "x.whl")
    assert (tmp_path / "x.whl").read_bytes() == BODY


def test_a_server_that_knows_no_range_at_all_is_not_asked_for_ever(server: Web, tmp_path: Path) -> None:
    (tmp_path / "x.whl.part").write_bytes(BODY[:1000])
    problem = refused(server.serve("/x", Answer(status=416)), tmp_path / "x.whl")
    assert "HTTP 416" in problem.what
    assert server.ranges("/x") == ["bytes=1000-", None]


def test_a_dead_server_is_an_error_without_its_address(tmp_path: Path) -> None:
    problem = refused("http://graft-user:secret@127.0.0.1:9/simple/x.whl", tmp_path / "x.whl")
    assert problem.what == f"x.whl: gave up after {net.ATTEMPTS} attempts (connection failed)"


@pytest.mark.parametrize("status", [401, 404, 500])
def test_credentials_reach_the_server_and_no_error(server: Web, tmp_path: Path, status: int) -> None:
    url = server.serve("/x", Answer(status=status)).replace("//", "//graft-user:secret@")
    refused(url, tmp_path / "x.whl")
    assert server.seen[0][1]["Authorization"].startswith("Basic ")


def test_a_redirect_is_followed(server: Web, tmp_path: Path) -> None:
    server.serve("/y", Answer(BODY))
    get(server.serve("/x", Answer(status=302, headers={"Location": "/y"})), tmp_path / "x.whl")
    assert (tmp_path / "x.whl").read_bytes() == BODY


def test_a_file_address_is_copied_and_checked(tmp_path: Path) -> None:
    source = tmp_path / "a b.whl"
    source.write_bytes(BODY)
    assert sum(get(source.as_uri(), tmp_path / "x.whl")) == len(BODY)
    assert (tmp_path / "x.whl").read_bytes() == BODY
    source.write_bytes(b"other")
    assert "wrong bytes" in refused(source.as_uri(), tmp_path / "y.whl").what
    source.unlink()
    with pytest.raises(FetchFailed, match="does not exist"):
        get(source.as_uri(), tmp_path / "z.whl")


def test_stop_ends_a_download_and_leaves_a_part_to_resume(server: Web, tmp_path: Path) -> None:
    url = server.serve("/x", Answer(BODY, pace=0.02), Answer(BODY))
    stop = threading.Event()
    with pytest.raises(net.Stopped):
        net.download(
            net.session(),
            url,
            tmp_path / "x.whl",
            expected(),
            what="x",
            stop=stop,
            on_bytes=lambda n: stop.set() if n else None,
        )
    kept = (tmp_path / "x.whl.part").stat().st_size
    assert 0 < kept < len(BODY)
    get(url, tmp_path / "x.whl")
    assert server.ranges("/x") == [None, f"bytes={kept}-"]
    assert (tmp_path / "x.whl").read_bytes() == BODY


def test_stop_ends_the_pause_between_attempts(server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 60.0)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    with pytest.raises(net.Stopped):
        net.download(
            net.session(), server.serve("/x", Answer(status=503)), tmp_path / "x", expected(), what="x", stop=stop
        )
    assert time.monotonic() - started < 5


def child(url: str, target: Path) -> subprocess.Popen[str]:
    """A process of its own that downloads BODY."""
    code = f"""
        import sys
        from pathlib import Path
        from graft import net
        from graft.errors import GraftError
        try:
            net.download(net.session(), {url!r}, Path({str(target)!r}),
                         net.Expected({expected().sha256!r}, {len(BODY)}), what="x.whl")
        except GraftError as problem:
            print(problem.exit_code, problem.what)
            sys.exit(problem.exit_code)
    """
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def part_of_size(path: Path, size: int) -> None:
    deadline = time.monotonic() + 20
    while not (path.is_file() and path.stat().st_size >= size):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_dies_midway_is_resumed(server: Web, tmp_path: Path, number: signal.Signals) -> None:
    target = tmp_path / "x.whl"
    url = server.serve("/x", Answer(BODY, pace=0.2), Answer(BODY))
    running = child(url, target)
    part_of_size(tmp_path / "x.whl.part", 1_000_000)
    running.send_signal(number)
    out, _ = running.communicate(timeout=20)
    assert not target.exists()
    if number == signal.SIGINT:
        assert (running.returncode, out) == (130, "130 interrupted while fetching x.whl\n")
    get(url, target)
    assert target.read_bytes() == BODY
    assert int(str(server.ranges("/x")[1]).removeprefix("bytes=").removesuffix("-")) >= 1_000_000


def test_two_processes_fetch_one_file_once(server: Web, tmp_path: Path) -> None:
    target = tmp_path / "x.whl"
    url = server.serve("/x", Answer(BODY, pace=0.02))
    both = [child(url, target), child(url, target)]
    assert [p.communicate(timeout=30) for p in both] == [("", ""), ("", "")]
    assert target.read_bytes() == BODY
    assert len(server.seen) == 1


def test_stop_ends_the_wait_for_another_process(server: Web, tmp_path: Path) -> None:
    target = tmp_path / "x.whl"
    stop = threading.Event()
    with FileLock(f"{target}.lock"):
        threading.Timer(0.2, stop.set).start()
        with pytest.raises(net.Stopped):
            net.download(net.session(), server.url, target, expected(), what="x", stop=stop)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds less than BODY: a tmpfs where we may mount one, else a limit on a file's size."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode == 0
    )
    if mounted:
        yield folder
        subprocess.run(["umount", folder], check=True)
        return
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, old[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, old)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_said_and_the_download_resumes(server: Web, tmp_path: Path, small_disk: Path) -> None:
    url = server.serve("/x", Answer(BODY))
    problem = refused(url, small_disk / "x.whl")
    assert "cannot be written: " in problem.what
    assert "No space left" in problem.what or "File too large" in problem.what
    assert "make clean" in str(problem.cure)
    assert len(server.seen) == 1
    kept = (small_disk / "x.whl.part").read_bytes()
    assert BODY.startswith(kept)
    (tmp_path / "x.whl.part").write_bytes(kept)


def test_a_folder_that_cannot_be_made_is_an_error(server: Web, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    problem = refused(server.serve("/x", Answer(BODY)), tmp_path / "file" / "x.whl")
    assert "cannot be written: " in problem.what


def test_a_page_is_had_or_absent(server: Web) -> None:
    client = net.session()
    found = net.get(client, server.serve("/p", Answer(status=502), Answer(b"page")), accept="text/html", what="p")
    assert found is not None
    assert found.content == b"page"
    assert server.seen[-1][1]["Accept"] == "text/html"
    assert net.get(client, server.url + "/none", accept="text/html", what="p") is None


@pytest.mark.parametrize("status", [401, 503])
def test_a_refused_page_is_an_error_without_its_address(server: Web, status: int) -> None:
    url = server.serve("/p", Answer(status=status))
    with pytest.raises(FetchFailed) as caught:
        net.get(net.session(), url, accept="text/html", what="torch")
    assert f"HTTP {status}" in caught.value.what
    assert "127.0.0.1" not in str(caught.value.as_dict())


def test_the_hosts_certificates_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    assert net.session().verify is True
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert net.session().verify == str(bundle)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    assert net.session().verify is True


def test_errors_of_this_module_are_grafts() -> None:
    assert issubclass(net.Gone, GraftError)
    assert not issubclass(net.Stopped, GraftError)
