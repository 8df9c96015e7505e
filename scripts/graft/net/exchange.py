"""One request and its whole answer, for services that are written to. Retries are the caller's: only it knows
what a second try would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import requests

from graft.net import TIMEOUT, TRANSIENT, Session

__all__ = ["TRANSIENT", "Body", "Reply", "Unreached", "exchange"]

#: An answer to a write comes when all of it is on the other side's disk.
WRITE_TIMEOUT = (10.0, 120.0)
#: Documents: manifests, locks, bills of material. Layers never come through here.
MAX_BODY = 64_000_000
READS = frozenset({"GET", "HEAD"})

Kind = Literal["certificate", "not-tls", "proxy", "timeout", "cut"]


class Body(Protocol):
    """Bytes to send, of a known length."""

    def __len__(self) -> int: ...
    def read(self, count: int = -1) -> bytes: ...


@dataclass(frozen=True)
class Reply:
    """A whole answer. headers: names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unreached(Exception):
    """No whole answer came; the text says why, without the address."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def exchange(
    client: Session,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | Body | None = None,
    limit: int = MAX_BODY,
) -> Reply:
    """Send one request and read the answer, at most `limit` bytes of it. Raises Unreached.

    Redirects are followed for reads only, and credentials do not follow to another host. `.netrc` is not asked: it
    would replace the credentials that are given.
    """
    read = method in READS
    try:
        with client.request(
            method,
            url,
            headers={"Accept-Encoding": "identity", **headers},
            data=body,
            timeout=TIMEOUT if read else WRITE_TIMEOUT,
            allow_redirects=read,
            auth=_as_given,
            stream=True,
        ) as response:
            announced = response.headers.get("Content-Length", "")
            content = b"" if method == "HEAD" else _read(response, limit)
            if method != "HEAD" and announced.isdecimal() and len(content) < int(announced):
                raise Unreached("cut", "the answer was cut short")
            return Reply(response.status_code, response.headers, content)
    except requests.exceptions.SSLError as problem:
        kind: Kind = "certificate" if "CERTIFICATE_VERIFY_FAILED" in str(problem) else "not-tls"
        text = "its certificate is not trusted here" if kind == "certificate" else "it does not speak TLS"
        raise Unreached(kind, text) from None
    except requests.exceptions.ProxyError:
        raise Unreached("proxy", "the proxy refused") from None
    except requests.Timeout:
        raise Unreached("timeout", "timed out") from None
    except (requests.RequestException, OSError):
        # Also a connection that was reset while we were sending.
        raise Unreached("cut", "the connection failed or was cut") from None


def _read(response: requests.Response, limit: int) -> bytes:
    found = bytearray()
    for chunk in response.iter_content(1 << 16):
        found += chunk
        if len(found) > limit:
            raise Unreached("cut", f"the answer is larger than {limit // 1_000_000} MB")
    return bytes(found)


_as_given: Callable[[requests.PreparedRequest], requests.PreparedRequest] = lambda request: request  # noqa: E731
