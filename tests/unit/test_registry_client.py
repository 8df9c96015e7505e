"""Tokens: what a registry asks for, where it is got, and what is refused."""

from __future__ import annotations

import base64
from urllib.parse import urlencode

import pytest
from web import Answer, Web

from graft import net
from graft.errors import RegistryFailed
from graft.registry.client import Registry
from graft.registry.credentials import Credentials
from graft.registry.manifest import IMAGE, artifact
from graft.registry.reference import Repository
from graft.registry.referrers import artifacts_of

DOCUMENT = artifact("kind", [])
FOUND = Answer(DOCUMENT.data, kind=IMAGE)
TAG = "/v2/graft/manifests/tag"
TOKEN = "/token?" + urlencode({"scope": "repository:graft:pull", "service": "tests"})


def client(server: Web, credentials: Credentials | None = None) -> Registry:
    host = server.url.removeprefix("http://")
    return Registry(Repository(host, "graft"), net.session(), credentials, pause=lambda seconds: None)


def challenge(server: Web) -> Answer:
    value = f'Bearer realm="{server.url}/token",service="tests",scope="repository:graft:pull"'
    return Answer(status=401, headers={"WWW-Authenticate": value})


def sent(server: Web, path: str) -> list[str | None]:
    return [headers.get("Authorization") for seen, headers in server.seen if seen == path]


def test_a_token_is_got_with_the_password_and_used_alone(server: Web) -> None:
    server.serve(TAG, challenge(server), FOUND)
    server.serve(TOKEN, Answer(b'{"token": "abc"}'))
    known = client(server, Credentials("me", "secret"))
    assert known.digest_at("tag") == DOCUMENT.digest
    assert sent(server, TOKEN) == ["Basic " + base64.b64encode(b"me:secret").decode()]
    assert sent(server, TAG) == [None, "Bearer abc"]


def test_anybody_may_ask_for_a_token(server: Web) -> None:
    server.serve(TAG, challenge(server), FOUND)
    server.serve(TOKEN, Answer(b'{"access_token": "abc"}'))
    assert client(server).digest_at("tag") == DOCUMENT.digest
    assert sent(server, TOKEN) == [None]


def test_a_token_that_has_expired_is_got_anew(server: Web) -> None:
    server.serve(TAG, challenge(server), FOUND, challenge(server), FOUND)
    server.serve(TOKEN, Answer(b'{"token": "first"}'), Answer(b'{"token": "second"}'))
    known = client(server)
    assert known.digest_at("tag") == known.digest_at("tag") == DOCUMENT.digest
    assert sent(server, TAG) == [None, "Bearer first", "Bearer first", "Bearer second"]


def test_a_token_service_in_trouble_is_asked_again(server: Web) -> None:
    server.serve(TAG, challenge(server), challenge(server), FOUND)
    server.serve(TOKEN, Answer(status=503), Answer(b'{"token": "abc"}'))
    assert client(server).digest_at("tag") == DOCUMENT.digest


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(status=401), "refuses the credentials"),
        (Answer(b"hello"), "gave no token"),
        (Answer(b"[]"), "gave no token"),
        (Answer(b"{}"), "gave no token"),
    ],
)
def test_no_token(server: Web, answer: Answer, says: str) -> None:
    server.serve(TAG, challenge(server))
    server.serve(TOKEN, answer)
    with pytest.raises(RegistryFailed, match=says) as problem:
        client(server, Credentials("me", "secret")).manifest("tag")
    assert "secret" not in str(problem.value.as_dict())


def test_a_token_that_does_not_help(server: Web) -> None:
    server.serve(TAG, challenge(server))
    server.serve(TOKEN, Answer(b'{"token": "abc"}'))
    with pytest.raises(RegistryFailed, match="refuses the credentials"):
        client(server).manifest("tag")
    assert len(sent(server, TAG)) == 2


def test_credentials_go_to_no_place_without_tls(server: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    server.serve(TAG, challenge(server))
    known = client(server, Credentials("me", "secret"))
    known._known_base = f"{server.url}/v2/graft/"
    monkeypatch.setattr(Repository, "is_loopback", False)
    with pytest.raises(RegistryFailed, match="not HTTPS"):
        known.manifest("tag")
    assert [path for path, _ in server.seen] == [TAG]


def test_what_the_registry_says_of_a_refusal_is_shown(server: Web) -> None:
    body = b'{"errors": [{"code": "DENIED", "message": "quota\\nexceeded"}]}'
    server.serve(TAG, Answer(body, status=403))
    with pytest.raises(RegistryFailed, match="DENIED quota exceeded"):
        client(server).manifest("tag")


def test_a_digest_that_the_registry_claims_for_other_bytes(server: Web) -> None:
    server.serve(TAG, Answer(DOCUMENT.data, kind=IMAGE, headers={"Docker-Content-Digest": "sha256:" + "0" * 64}))
    with pytest.raises(RegistryFailed, match="are not those of its digest"):
        client(server).manifest("tag")


def test_the_referrers_interface_is_read(server: Web) -> None:
    subject = artifact("subject", [])
    made = artifact("kind", [], subject=subject.descriptor)
    other = artifact("kind", [])
    listed = b'{"manifests": [%s, %s]}' % tuple(
        b'{"mediaType": "%s", "digest": "%s", "size": %d, "artifactType": "kind"}'
        % (IMAGE.encode(), entry.digest.encode(), len(entry.data))
        for entry in (made, other)
    )
    server.serve(f"/v2/graft/referrers/{subject.digest}", Answer(listed))
    for entry in (made, other):
        server.serve(f"/v2/graft/manifests/{entry.digest}", Answer(entry.data, kind=IMAGE))
    # The list claims both; only one says itself that it is about the subject.
    assert [found.digest for found in artifacts_of(client(server), subject.digest, "kind")] == [made.digest]
