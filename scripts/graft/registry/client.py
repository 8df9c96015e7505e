"""One repository in a registry, spoken to as the OCI distribution specification says.

What is tried again: 408, 429, 5xx and broken connections, with a bound. What is final: every other 4xx. Of a write
nothing is believed: what matters is read back (docs/publish.md says why).
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode, urljoin, urlsplit

from graft.errors import RegistryFailed
from graft.net import Session
from graft.net.exchange import TRANSIENT, Body, Reply, Unreached, exchange
from graft.registry.credentials import Credentials
from graft.registry.manifest import ACCEPT, Document, digest_of_bytes
from graft.registry.reference import Repository

ATTEMPTS = 6
#: Seconds before the second try; doubled for each further one, up to LONGEST.
BACKOFF, LONGEST = 0.5, 15.0
#: A manifest is at most 4 MB in every registry.
MAX_MANIFEST = 4_000_000
PARAMETER = re.compile(r'(\w+)="([^"]*)"')
SAYS: Mapping[int, tuple[str, str]] = {
    400: ("refuses the request as malformed", "its log says more"),
    401: ("refuses the credentials", "docker login {host}: they are wrong, expired or missing"),
    403: ("denies it", "ask for the right to write there, or docker login {host} as somebody who has it"),
    404: ("does not know it", "check the name, and that the repository exists"),
    405: ("does not allow it: it is read-only", "publish to another registry, or make it writable"),
    413: ("says that it is too large", "raise the registry's limit on uploads"),
    429: ("still says that there are too many requests", "wait, then run the same command: it goes on"),
    507: ("has no space left", "make room there, then run the same command: it goes on"),
}
FULL_OR_BROKEN = "look at its log (a full disk is said this way); then run the same command: it goes on"
Progress = Callable[[int], None]


class Registry:
    """A repository. Threads may share it."""

    def __init__(
        self,
        repository: Repository,
        session: Session,
        credentials: Credentials | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.repository = repository
        self.pause = pause
        self._session = session
        self.credentials = credentials
        self._authorization: str | None = None
        self._lock = threading.Lock()
        self._known_base: str | None = None
        self._has: set[str] = set()
        self._writes = False

    # Manifests

    def manifest(self, target: str) -> Document | None:
        """The manifest under a tag or digest, its bytes checked; None when there is none. Raises RegistryFailed."""
        where = self.name(target)
        reply = self.call("GET", f"manifests/{target}", what=where, headers={"Accept": ACCEPT}, final=(404,))
        if reply.status == 404:
            return None
        document = Document(reply.headers.get("Content-Type", "").partition(";")[0].strip(), reply.body)
        if len(reply.body) > MAX_MANIFEST:
            raise RegistryFailed("the manifest is larger than 4 MB", where=where)
        wanted = target if target.startswith("sha256:") else reply.headers.get("Docker-Content-Digest")
        if wanted is not None and wanted != document.digest:
            raise RegistryFailed(
                f"the bytes of the manifest are not those of its digest: {document.digest}, not {wanted}",
                where=where,
                cure="something between here and the registry changes what it sends, or its storage is damaged",
            )
        return document

    def digest_at(self, tag: str) -> str | None:
        """What a tag points to now."""
        found = self.manifest(tag)
        return None if found is None else found.digest

    def put_manifest(self, document: Document, target: str | None = None) -> Reply:
        """Write a manifest under its digest or a tag, and read it back. Raises RegistryFailed."""
        place = target or document.digest
        where = self.name(place)
        reply = self.call(
            "PUT",
            f"manifests/{place}",
            what=where,
            headers={"Content-Type": document.media_type},
            body=document.data,
            push=True,
        )
        back = self.manifest(place)
        if back is None or back.data != document.data:
            found = "nothing" if back is None else back.digest
            raise TagChanged(
                f"{document.digest} was written and {found} is read back", where=where, cure="see who else writes there"
            )
        return reply

    # Blobs; writing them is in graft.registry.blobs

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has it now; what it had once in this run is not asked for again."""
        if digest not in self._has:
            reply = self.call("HEAD", f"blobs/{digest}", what=self.name(digest), final=(404,))
            if reply.status == 404:
                return False
            self._has.add(digest)
        return True

    def blob(self, digest: str, size: int, what: str) -> bytes:
        """A small blob, held to its digest and size. Raises RegistryFailed."""
        where = f"{what} in {self.repository}"
        reply = self.call("GET", f"blobs/{digest}", what=where, final=(404,))
        if reply.status == 404:
            raise RegistryFailed("the registry lacks it", where=where)
        if len(reply.body) != size or digest_of_bytes(reply.body) != digest:
            raise RegistryFailed("its bytes are not those of its digest: damaged or tampered with", where=where)
        return reply.body

    # Requests

    def name(self, target: str) -> str:
        """For messages: repository and tag or digest."""
        return f"{self.repository}{'@' if target.startswith('sha256:') else ':'}{target}"

    def call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        push: bool = False,
        final: tuple[int, ...] = (),
    ) -> Reply:
        """One request with retries; a status in `final` is returned, any other refusal raised as RegistryFailed."""
        reason = ""
        reply: Reply | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                self.wait(attempt - 1, reply)
                reply = None
            try:
                reply = self.once(method, path, headers=headers, body=body, push=push)
            except Unreached as problem:
                reason = str(problem)
                if problem.kind in ("certificate", "not-tls"):
                    raise self.unreached(problem, what) from None
                continue
            if reply.status not in TRANSIENT:
                if reply.status >= 400 and reply.status not in final:
                    raise self.refused(reply, what)
                return reply
            reason = f"HTTP {reply.status}"
        if reply is not None:
            raise self.refused(reply, what)
        raise RegistryFailed(
            f"gave up after {ATTEMPTS} attempts ({reason})",
            where=what,
            cure="check that the registry is up and reachable, then run the same command: it goes on",
        )

    def once(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Callable[[], Body] | None = None,
        push: bool = False,
    ) -> Reply:
        """One request, with one more when the registry asks who we are. path: below the repository, or an address
        that the registry gave. Raises Unreached, and RegistryFailed for refused credentials."""
        url = path if "://" in path else f"{self._base()}{path}"
        reply = self._send(method, url, headers, body)
        if reply.status == 401:
            # A token for reading would be refused at the next write, and threads share it.
            self._writes = self._writes or push
            self._authorize(reply)
            reply = self._send(method, url, headers, body)
        return reply

    def absolute(self, location: str) -> str:
        """The address in a Location header, which may be relative."""
        return urljoin(self._base(), location)

    def wait(self, attempt: int, reply: Reply | None = None) -> None:
        """Before another try; the registry may say how long, up to a minute."""
        asked = reply.headers.get("Retry-After", "") if reply is not None else ""
        if asked.isdecimal():
            self.pause(min(60.0, float(asked)))
        else:
            self.pause(min(LONGEST, BACKOFF * 2**attempt) * random.uniform(0.7, 1.3))

    def refused(self, reply: Reply, what: str) -> RegistryFailed:
        """The error for a final status, with what the registry says of it."""
        text, cure = SAYS.get(reply.status, (f"answers HTTP {reply.status}", FULL_OR_BROKEN))
        said = _said(reply.body)
        return RegistryFailed(
            f"the registry {text} (HTTP {reply.status}{': ' + said if said else ''})",
            where=what,
            cure=cure.format(host=self.repository.host),
        )

    def unreached(self, problem: Unreached, what: str) -> RegistryFailed:
        """The error for a registry that cannot be talked to."""
        cure = "check that the registry is up and reachable, then run the same command: it goes on"
        if problem.kind == "certificate":
            cure = "name the CA that signed it: SSL_CERT_FILE or REQUESTS_CA_BUNDLE for graft, certs.d for Docker"
        elif problem.kind == "not-tls":
            cure = "plain HTTP is spoken on the loopback address only: give the registry a certificate"
        return RegistryFailed(f"{self.repository.host}: {problem}", where=what, cure=cure)

    def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: bytes | Callable[[], Body] | None
    ) -> Reply:
        own = dict(headers or {})
        # Uploads may be sent to another host, by an address that carries its own permission.
        if self._authorization is not None and urlsplit(url).netloc == urlsplit(self._base()).netloc:
            own["Authorization"] = self._authorization
        return exchange(self._session, method, url, headers=own, body=body() if callable(body) else body)

    def _base(self) -> str:
        with self._lock:
            if self._known_base is None:
                scheme = self._scheme() if self.repository.is_loopback else "https"
                self._known_base = f"{scheme}://{self.repository.api_host}/v2/{self.repository.path}/"
            return self._known_base

    def _scheme(self) -> str:
        """On the loopback address: HTTPS where it is spoken, else HTTP."""
        try:
            exchange(self._session, "GET", f"https://{self.repository.api_host}/v2/", headers={})
        except Unreached as problem:
            if problem.kind == "not-tls":
                return "http"
            raise
        return "https"

    # Who we are

    def _authorize(self, reply: Reply) -> None:
        """Answer a challenge: Basic, or a Bearer token from the place that the registry names."""
        challenge = reply.headers.get("WWW-Authenticate", "")
        kind = challenge.partition(" ")[0].lower()
        if kind == "bearer":
            self._authorization = f"Bearer {self._token(dict(PARAMETER.findall(challenge)))}"
        elif kind == "basic" and self.credentials is not None and not self.credentials.is_token:
            self._authorization = self.credentials.basic
        else:
            raise self.refused(reply, str(self.repository))

    def _token(self, asked: Mapping[str, str]) -> str:
        realm = urlsplit(asked.get("realm", ""))
        if realm.scheme != "https" and not (realm.scheme == "http" and self.repository.is_loopback):
            raise RegistryFailed("asks for a token from a place that is not HTTPS", where=str(self.repository))
        scope = f"repository:{self.repository.path}:{'pull,push' if self._writes else 'pull'}"
        query = {"scope": scope, **({"service": asked["service"]} if "service" in asked else {})}
        credentials = self.credentials
        if credentials is not None and credentials.is_token:
            form = {**query, "grant_type": "refresh_token", "client_id": "graft", "refresh_token": credentials.secret}
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            reply = exchange(self._session, "POST", realm.geturl(), headers=headers, body=urlencode(form).encode())
        else:
            address = realm._replace(query="&".join(filter(None, (realm.query, urlencode(query))))).geturl()
            headers = {"Authorization": credentials.basic} if credentials is not None else {}
            reply = exchange(self._session, "GET", address, headers=headers)
        if reply.status in TRANSIENT:
            raise Unreached("cut", f"the token service answers HTTP {reply.status}")
        if reply.status != 200:
            raise self.refused(Reply(401, {}, reply.body), str(self.repository))
        try:
            data = json.loads(reply.body)
            token = data.get("token") or data["access_token"]
        except (ValueError, KeyError, AttributeError):
            raise RegistryFailed("the token service gave no token", where=str(self.repository)) from None
        return str(token)


class TagChanged(RegistryFailed):
    """What was written under a name is not what is read there: somebody else wrote after us."""


def _said(body: bytes) -> str:
    """Code and message of the registry's error, one line."""
    try:
        first = json.loads(body)["errors"][0]
        text = f"{first.get('code', '')} {first.get('message', '')}"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return ""
    return " ".join(text.split())[:200]
