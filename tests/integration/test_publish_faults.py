"""A registry that is slow, full, read-only, down, or wrong: what is tried again, what is final, and what is left."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import ipaddress
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distribution import PASSWORD, USER, Distribution, distribution, free_port, small_disk
from faults import Fault, Proxy, faulty
from publishing import CHANNEL, HISTORY, Shop

from graft import net
from graft.errors import RegistryFailed
from graft.publish.history import Move, Record, read_history, record
from graft.publish.tagging import put_immutable
from graft.publish.verify import verify
from graft.registry.blobs import BytesBlob, put_blob
from graft.registry.client import ATTEMPTS, Registry
from graft.registry.credentials import Credentials
from graft.registry.manifest import artifact, index
from graft.registry.reference import Reference, Repository
from graft.registry.referrers import Attachment, attach, fallback_tag, referrers


@pytest.fixture
def proxy(running: Distribution) -> Iterator[Proxy]:
    with faulty(running.host) as started:
        yield started


@pytest.fixture
def client(proxy: Proxy) -> Registry:
    """A repository behind the proxy, which waits for nothing."""
    return Registry(Repository(proxy.host, "graft"), net.session(), pause=lambda seconds: None)


@pytest.fixture
def through(shop: Shop, proxy: Proxy) -> Shop:
    return dataclasses.replace(shop, host=proxy.host)


BIG = BytesBlob(bytes(range(256)) * 4000)


class TestTriedAgain:
    """What another try may change."""

    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    @pytest.mark.parametrize("request_line", ["HEAD .*/blobs/", "POST .*/blobs/uploads/", "PATCH ", "PUT .*digest="])
    def test_a_blob(self, client: Registry, proxy: Proxy, status: int, request_line: str) -> None:
        proxy.faults = [Fault("status", request_line, status=status, times=2)]
        assert put_blob(client, BIG)
        assert client.blob(BIG.digest, BIG.size, "it") == BIG.data

    @pytest.mark.parametrize("kind", ["drop-after", "cut-answer"])
    @pytest.mark.parametrize("request_line", ["GET .*/manifests/", "PUT .*/manifests/"])
    def test_a_manifest(self, client: Registry, proxy: Proxy, kind: str, request_line: str) -> None:
        proxy.faults = [Fault(kind, request_line, count=10)]  # type: ignore[arg-type]
        client.put_manifest(index([]), "tag")
        assert client.digest_at("tag") == index([]).digest

    def test_as_long_after_as_the_registry_asks(self, proxy: Proxy) -> None:
        waited: list[float] = []
        client = Registry(Repository(proxy.host, "graft"), net.session(), pause=waited.append)
        proxy.faults = [
            Fault("status", "GET", status=429, headers={"Retry-After": "7"}),
            Fault("status", "GET", status=429, headers={"Retry-After": "99999"}),
            Fault("status", "GET", status=503),
        ]
        assert client.manifest("none") is None
        assert waited[:2] == [7.0, 60.0]
        assert 0 < waited[2] < 10

    def test_a_cut_upload_starts_anew_where_the_registry_keeps_no_part(self, client: Registry, proxy: Proxy) -> None:
        """docker-registry calls an upload invalid once a request of it was cut."""
        proxy.faults = [Fault("cut-request", "PATCH", count=600_000)]
        assert put_blob(client, BIG)
        assert client.blob(BIG.digest, BIG.size, "it") == BIG.data
        assert proxy.count("POST") == 2

    @pytest.mark.parametrize("cut", [1, 2, 600_000, 1_023_999])
    def test_a_cut_upload_goes_on_where_the_registry_keeps_it(self, cut: int) -> None:
        with keeping(cut) as registry:
            client = Registry(Repository(registry.host, "graft"), net.session(), pause=lambda seconds: None)
            assert put_blob(client, BIG)
        assert bytes(registry.kept) == BIG.data
        # One byte and none are told apart by nobody: `0-0` is both.
        assert registry.ranges == [None, f"{cut}-{BIG.size - 1}" if cut > 1 else None]

    def test_an_upload_that_the_registry_forgot_starts_anew(self, client: Registry, proxy: Proxy) -> None:
        proxy.faults = [Fault("status", "PUT .*digest=", status=404)]
        assert put_blob(client, BIG)
        assert proxy.count("POST") == 2

    def test_a_slow_registry(self, through: Shop, proxy: Proxy) -> None:
        proxy.faults = [Fault("slow", "PATCH|PUT", seconds=0.3, times=3)]
        through.push(through.release(1))

    def test_a_whole_push_through_every_kind_of_fault(self, through: Shop, proxy: Proxy, running: Distribution) -> None:
        proxy.faults = [
            Fault("cut-request", "PATCH", count=100_000),
            Fault("status", "POST", status=500),
            Fault("drop-after", "PUT .*/manifests/", times=2),
            Fault("status", "PUT .*/manifests/", status=503, times=3),
            Fault("cut-answer", "GET .*/manifests/", count=5, times=3),
            Fault("status", "HEAD", status=429, times=2),
        ]
        release = through.release(1, padding=400_000)
        done = through.push(release)
        assert not [fault for fault in proxy.faults if fault.times]
        assert running.tags("graft")[CHANNEL] == done.digest
        verify(through.registry, Reference(through.repository, tag=CHANNEL), through.public)


class TestFinal:
    """What no other try will change: one request, the reason, exit 8."""

    @pytest.mark.parametrize(
        ("status", "says"),
        [(400, "malformed"), (401, "credentials"), (403, "denies"), (404, "does not know"), (405, "read-only")],
    )
    def test_a_refused_write(self, client: Registry, proxy: Proxy, status: int, says: str) -> None:
        proxy.faults = [Fault("status", "PUT .*/manifests/", status=status, times=99)]
        with pytest.raises(RegistryFailed, match=says) as problem:
            client.put_manifest(index([]), "tag")
        assert problem.value.cure
        assert proxy.count("PUT") == 1

    @pytest.mark.parametrize("status", [401, 403, 405, 413])
    def test_a_refused_upload(self, client: Registry, proxy: Proxy, status: int) -> None:
        proxy.faults = [Fault("status", "POST", status=status, times=99)]
        with pytest.raises(RegistryFailed, match=f"HTTP {status}"):
            put_blob(client, BIG)
        assert proxy.count("POST") == 1

    @pytest.mark.parametrize("request_line", ["POST", "PATCH", "PUT", "HEAD", "GET .*/manifests"])
    def test_tries_have_a_bound(self, through: Shop, proxy: Proxy, running: Distribution, request_line: str) -> None:
        proxy.faults = [Fault("status", request_line, status=500, times=999)]
        with pytest.raises(RegistryFailed, match="HTTP 500"):
            through.push(through.release(1, padding=100_000))
        # Two layers go at once, each with tries of its own.
        assert ATTEMPTS <= proxy.count(f"^{request_line}") <= 3 * ATTEMPTS
        assert running.tags("graft") == {}

    def test_a_registry_that_is_down(self, planned_shop: Shop) -> None:
        nobody = dataclasses.replace(planned_shop, host=f"127.0.0.1:{free_port()}")
        with pytest.raises(RegistryFailed, match="gave up after 6 attempts") as problem:
            nobody.push(nobody.release(1))
        assert "reachable" in str(problem.value.cure)

    def test_a_truncated_manifest(self, through: Shop, proxy: Proxy) -> None:
        through.push(through.release(1))
        proxy.faults = [Fault("truncate", f"GET .*/manifests/{CHANNEL}", count=100)]
        with pytest.raises(RegistryFailed, match="are not those of its digest"):
            through.registry.manifest(CHANNEL)

    def test_a_truncated_blob(self, through: Shop, proxy: Proxy) -> None:
        through.push(through.release(1))
        proxy.faults = [Fault("truncate", "GET .*/blobs/", count=20)]
        with pytest.raises(RegistryFailed, match="are not those of its digest"):
            verify(through.registry, Reference(through.repository, tag=CHANNEL), through.public)

    def test_a_read_only_registry(self, planned_shop: Shop, tmp_path: Path) -> None:
        with distribution(tmp_path / "r", read_only=True) as registry:
            shop = dataclasses.replace(planned_shop, host=registry.host)
            with pytest.raises(RegistryFailed, match="read-only"):
                shop.push(shop.release(1))

    @pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
    def test_a_full_disk(self, planned_shop: Shop, tmp_path: Path) -> None:
        with small_disk(1) as disk, distribution(tmp_path / "r", storage=disk / "data") as registry:
            shop = dataclasses.replace(planned_shop, host=registry.host)
            release = shop.release(1, padding=1_500_000)
            with pytest.raises(RegistryFailed, match="HTTP 500") as problem:
                shop.push(release)
            assert "full disk" in str(problem.value.cure)
            assert registry.tags("graft") == {}
            subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
            done = shop.push(release)
            assert registry.tags("graft")[CHANNEL] == done.digest


class TestWhoAndHow:
    """Credentials and TLS."""

    @pytest.fixture
    def guarded(self, planned_shop: Shop, tmp_path: Path) -> Iterator[Shop]:
        with distribution(tmp_path / "r", password=True) as registry:
            yield dataclasses.replace(planned_shop, host=registry.host)

    def test_the_right_password(self, guarded: Shop) -> None:
        known = dataclasses.replace(guarded, credentials=Credentials(USER, PASSWORD))
        known.push(known.release(1))
        verify(known.registry, Reference(known.repository, tag=CHANNEL), known.public)

    @pytest.mark.parametrize("credentials", [None, Credentials(USER, "wrong"), Credentials("nobody", PASSWORD)])
    def test_wrong_or_none(self, guarded: Shop, credentials: Credentials | None) -> None:
        other = dataclasses.replace(guarded, credentials=credentials)
        with pytest.raises(RegistryFailed, match="refuses the credentials") as problem:
            other.push(other.release(1))
        assert "docker login" in str(problem.value.cure)
        assert PASSWORD not in str(problem.value.as_dict())

    def test_netrc_does_not_replace_what_docker_knows(
        self, guarded: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        known = dataclasses.replace(guarded, credentials=Credentials(USER, PASSWORD))
        assert known.registry.manifest("none") is None

    def test_tls_by_a_private_ca(self, planned_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        certificate, key = certificates(tmp_path)
        with distribution(tmp_path / "r", tls=(certificate, key)) as registry:
            shop = dataclasses.replace(planned_shop, host=registry.host)
            with pytest.raises(RegistryFailed, match="certificate is not trusted") as problem:
                shop.push(shop.release(1))
            assert "SSL_CERT_FILE" in str(problem.value.cure)
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
            shop.push(shop.release(1))
            assert shop.registry.digest_at(CHANNEL)
            assert "http: TLS handshake error" in registry.log.read_text()

    def test_plain_http_where_https_is_expected(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Repository, "is_loopback", False)
        with pytest.raises(RegistryFailed, match="does not speak TLS") as problem:
            shop.push(shop.release(1))
        assert "certificate" in str(problem.value.cure)


class TestAtTheSameMoment:
    """Two writers: what is read back decides."""

    def test_two_pushes_of_one_immutable_tag(self, client: Registry, proxy: Proxy, running: Distribution) -> None:
        put_blob(client, BytesBlob(b"{}"))
        mine, theirs = artifact("mine", []), artifact("theirs", [])
        # Both saw a free tag. The other one writes between our write and our last look at it.
        client.pause = lambda seconds: client.put_manifest(theirs, "immutable") and None
        with pytest.raises(RegistryFailed) as problem:
            put_immutable(client, mine, "immutable")
        assert theirs.digest in problem.value.what
        assert "won the tag" in problem.value.what
        assert running.tags("graft")["immutable"] == theirs.digest
        client.pause = lambda seconds: None
        assert put_immutable(client, theirs, "immutable") is False
        with pytest.raises(RegistryFailed, match="never moved"):
            put_immutable(client, mine, "immutable")

    def test_the_record_keeps_both_moves(self, client: Registry, proxy: Proxy, running: Distribution) -> None:
        direct = Registry(Repository(running.host, "graft"), net.session())
        mine, theirs = moved("mine", "1"), moved("theirs", "2")
        others: list[Record] = []

        def interfere(number: int) -> None:
            if number < 0 and proxy.seen[-number - 1].startswith(f"PUT /v2/graft/manifests/{HISTORY}") and not others:
                others.append(record_over(direct, theirs))

        proxy.watch = interfere
        record(client, HISTORY, mine)
        assert others
        assert {entry.channel for entry in read_history(client, HISTORY).moves} == {"mine", "theirs"}

    def test_what_is_attached_at_the_same_time_is_all_listed(
        self, through: Shop, client: Registry, proxy: Proxy, running: Distribution
    ) -> None:
        done = through.push(through.release(1))
        document = client.manifest(done.digest)
        assert document is not None
        before = client.manifest(fallback_tag(done.digest))
        assert before is not None
        direct = Registry(Repository(running.host, "graft"), net.session())
        came: list[int] = []

        def interfere(number: int) -> None:
            if number < 0 and proxy.seen[-number - 1].startswith("PUT /v2/graft/manifests/sha256-") and not came:
                came.append(number)
                direct.put_manifest(before, fallback_tag(done.digest))
                attach(direct, document.descriptor, [Attachment("theirs", b"theirs", {})])

        proxy.watch = interfere
        attach(client, document.descriptor, [Attachment("mine", b"mine", {})])
        assert came
        kinds = {entry.artifact_type for entry in referrers(client, done.digest)}
        assert {"mine", "theirs", "application/vnd.cyclonedx+json"} <= kinds


def test_a_registry_with_the_referrers_interface_gets_no_tag(
    client: Registry, proxy: Proxy, running: Distribution
) -> None:
    subject = artifact("subject", [])
    put_blob(client, BytesBlob(b"{}"))
    client.put_manifest(subject)
    proxy.faults = [Fault("add-headers", "PUT .*/manifests/", headers={"OCI-Subject": subject.digest}, times=9)]
    attach(client, subject.descriptor, [Attachment("kind", b"data", {})])
    assert running.tags("graft") == {}


class Keeping:
    """A registry that keeps what came of an upload, and cuts the first one after `cut` bytes."""

    def __init__(self, cut: int) -> None:
        self.cut, self.kept = cut, bytearray()
        self.ranges: list[str | None] = []
        handler = type("Handler", (_KeepingHandler,), {"registry": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"


class _KeepingHandler(BaseHTTPRequestHandler):
    registry: Keeping
    protocol_version = "HTTP/1.1"

    def _say(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def do_HEAD(self) -> None:
        self._say(404)

    def do_POST(self) -> None:
        self.registry.kept.clear()
        self._say(202, Location="/upload")

    def do_GET(self) -> None:
        self._say(204, Location="/upload", Range=f"0-{max(0, len(self.registry.kept) - 1)}")

    def do_PATCH(self) -> None:
        length, first = int(self.headers["Content-Length"]), not self.registry.ranges
        self.registry.ranges.append(self.headers.get("Content-Range"))
        self.registry.kept += self.rfile.read(self.registry.cut if first else length)
        if first:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._say(202, Location="/upload")

    def do_PUT(self) -> None:
        self._say(201)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def keeping(cut: int) -> Iterator[Keeping]:
    made = Keeping(cut)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(5)


def moved(channel: str, digit: str) -> Move:
    digest = "sha256:" + digit * 64
    return Move(
        channel=channel, action="promote", digest=digest, previous=None, image_id=digest, tag="t", by="me", at="now"
    )


def record_over(registry: Registry, move: Move) -> Record:
    """As a writer that had read an empty record."""
    made = Record(schema_version=1, moves=(move,))
    blob = BytesBlob(made.model_dump_json().encode())
    put_blob(registry, blob)
    kind = "application/vnd.graft.history.v1+json"
    registry.put_manifest(artifact(kind, [blob.descriptor(kind)]), HISTORY)
    return made


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "graft tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "tls.crt", folder / "tls.key"
