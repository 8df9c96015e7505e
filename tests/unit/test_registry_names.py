"""Names of repositories and images, and credentials from Docker's configuration."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from graft.errors import BadInput, RegistryFailed
from graft.registry.credentials import Credentials, find_credentials
from graft.registry.reference import Reference, Repository, parse_reference, parse_repository

HEX = "sha256:" + "a" * 64
HERE = Repository("example.invalid", "me/graft")


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("127.0.0.1:5000", "127.0.0.1:5000", "graft"),
        ("ghcr.io/me/vllm", "ghcr.io", "me/vllm"),
        ("localhost", "localhost", "graft"),
        ("localhost:5000/a__b/c-d.e", "localhost:5000", "a__b/c-d.e"),
        ("[::1]:5000/a", "[::1]:5000", "a"),
    ],
)
def test_repositories(text: str, host: str, path: str) -> None:
    assert parse_repository(text, "graft", "here") == Repository(host, path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "graft",
        "me/vllm",
        "ghcr.io/Me",
        "ghcr.io/",
        "ghcr.io/a//b",
        "ghcr.io/a:tag",
        "-x.io/a",
        "a b.c/d",
        "http://ghcr.io/a",
    ],
)
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(BadInput) as problem:
        parse_repository(text, "graft", "REGISTRY")
    assert problem.value.where == "REGISTRY"
    assert problem.value.cure


@pytest.mark.parametrize(
    ("text", "tag", "digest"),
    [
        ("ghcr.io/me/vllm:a", "a", None),
        (f"ghcr.io/me/vllm@{HEX}", None, HEX),
        (f"ghcr.io/me/vllm:a@{HEX}", "a", HEX),
    ],
)
def test_references(text: str, tag: str | None, digest: str | None) -> None:
    made = parse_reference(text, "IMAGE")
    assert made == Reference(Repository("ghcr.io", "me/vllm"), tag, digest)
    assert str(made) == text
    assert made.target == digest or made.target == tag


def test_a_port_is_no_tag() -> None:
    assert parse_reference("host:5000/a:t", "IMAGE") == Reference(Repository("host:5000", "a"), "t")


def test_a_bare_tag_or_digest_is_of_the_projects_repository() -> None:
    assert parse_reference("t", "IMAGE", HERE) == Reference(HERE, "t")
    assert parse_reference(":t", "IMAGE", HERE) == Reference(HERE, "t")
    assert parse_reference(HEX, "IMAGE", HERE) == Reference(HERE, digest=HEX)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t",
        "ghcr.io/me/vllm",
        "ghcr.io/me/vllm:",
        "ghcr.io/me/vllm:a b",
        "ghcr.io/me/vllm@sha256:12",
        "ghcr.io/a:" + "t" * 129,
    ],
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(BadInput):
        parse_reference(text, "IMAGE")


def test_only_loopback_may_speak_plain_http() -> None:
    loopback = ["127.0.0.1:5000", "127.9.9.9", "localhost", "localhost:1", "[::1]:5000"]
    assert all(Repository(host, "a").is_loopback for host in loopback)
    elsewhere = ["10.0.0.1", "ghcr.io", "127.0.0.1.example.invalid", "localhost.example.invalid"]
    assert not any(Repository(host, "a").is_loopback for host in elsewhere)


def test_docker_hub_answers_at_another_name() -> None:
    hub = Repository("docker.io", "me/vllm")
    assert (hub.api_host, hub.login) == ("registry-1.docker.io", "https://index.docker.io/v1/")


class TestCredentials:
    """As `docker login` leaves them."""

    def write(self, folder: Path, config: object) -> dict[str, str]:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        return {"DOCKER_CONFIG": str(folder), "PATH": str(folder)}

    def helper(self, folder: Path, name: str, script: str) -> None:
        program = folder / f"docker-credential-{name}"
        program.write_text(f"#!/bin/sh\nread -r server\n{script}\n")
        program.chmod(0o755)

    def test_none(self, tmp_path: Path) -> None:
        assert find_credentials(HERE, {"DOCKER_CONFIG": str(tmp_path)}) is None
        assert find_credentials(HERE, {"HOME": str(tmp_path)}) is None
        assert find_credentials(HERE, self.write(tmp_path, {"auths": {"other.invalid": {"auth": "YTpi"}}})) is None

    def test_base64(self, tmp_path: Path) -> None:
        secret = base64.b64encode(b"user:pass:word").decode()
        env = self.write(tmp_path, {"auths": {"example.invalid": {"auth": secret}}})
        assert find_credentials(HERE, env) == Credentials("user", "pass:word")
        assert "pass:word" not in repr(find_credentials(HERE, env))

    def test_old_forms_of_the_name(self, tmp_path: Path) -> None:
        env = self.write(tmp_path, {"auths": {"https://example.invalid/v1/": {"username": "u", "password": "p"}}})
        assert find_credentials(HERE, env) == Credentials("u", "p")

    def test_an_identity_token(self, tmp_path: Path) -> None:
        found = find_credentials(HERE, self.write(tmp_path, {"auths": {"example.invalid": {"identitytoken": "t"}}}))
        assert found is not None
        assert found.is_token
        assert found.for_docker() == {"identitytoken": "t"}

    def test_a_helper_for_this_registry_comes_first(self, tmp_path: Path) -> None:
        self.helper(tmp_path, "mine", """echo "{\\"Username\\": \\"$1 $server\\", \\"Secret\\": \\"s\\"}" """)
        env = self.write(
            tmp_path,
            {
                "credHelpers": {"example.invalid": "mine"},
                "credsStore": "another",
                "auths": {"example.invalid": {"auth": "YTpi"}},
            },
        )
        assert find_credentials(HERE, env) == Credentials("get example.invalid", "s")

    def test_a_store_without_an_entry(self, tmp_path: Path) -> None:
        self.helper(tmp_path, "store", "echo 'credentials not found in native keychain'; exit 1")
        env = self.write(tmp_path, {"credsStore": "store", "auths": {"example.invalid": {"auth": "YTpi"}}})
        assert find_credentials(HERE, env) == Credentials("a", "b")

    def test_a_helper_that_fails_shows_nothing_of_its_stdout(self, tmp_path: Path) -> None:
        self.helper(tmp_path, "store", "echo a-secret; echo locked >&2; exit 3")
        with pytest.raises(RegistryFailed) as problem:
            find_credentials(HERE, self.write(tmp_path, {"credsStore": "store"}))
        assert problem.value.tail == "locked\n"
        assert "a-secret" not in str(problem.value.as_dict())

    def test_a_helper_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(RegistryFailed, match="docker-credential-gone, which is not on PATH"):
            find_credentials(HERE, self.write(tmp_path, {"credsStore": "gone"}))

    def test_a_helper_that_answers_nonsense(self, tmp_path: Path) -> None:
        self.helper(tmp_path, "store", "echo hello")
        with pytest.raises(RegistryFailed, match="did not answer"):
            find_credentials(HERE, self.write(tmp_path, {"credsStore": "store"}))

    @pytest.mark.parametrize("name", ["../../evil", "a/b", "a b", "a;b"])
    def test_a_helper_is_a_name_and_no_path(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(BadInput, match="no name of a credential helper"):
            find_credentials(HERE, self.write(tmp_path, {"credsStore": name}))

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]",
            '{"auths": ["a"]}',
            '{"auths": {"example.invalid": {"auth": "%%%"}}}',
            '{"auths": {"example.invalid": {"auth": "YQ=="}}}',
        ],
    )
    def test_a_damaged_file(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(BadInput) as problem:
            find_credentials(HERE, self.write(tmp_path, text))
        assert str(tmp_path) in str(problem.value.where)
