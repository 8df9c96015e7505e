"""Mistakes of the user around publishing: each with its exit code and a cure. No engine, mostly no registry."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from publishing import Shop

from graft.commands.push import channel_tags
from graft.commands.registry import publisher, repository_of, signing_key
from graft.commands.session import Session
from graft.errors import BadInput
from graft.project import Project
from graft.publish.keys import new_pair


def with_build_yaml(session: Session, **changes: object) -> Session:
    """The session of a project whose build.yaml says something else."""
    data = yaml.safe_load(session.paths.build_yaml.read_text(encoding="utf-8"))
    return dataclasses.replace(session, project=Project.model_validate(data | changes))


def test_no_registry(planned_shop: Shop) -> None:
    with pytest.raises(BadInput, match="no registry is named") as problem:
        repository_of(planned_shop.session, None)
    assert "REGISTRY=" in str(problem.value.cure)


def test_the_variable_is_before_build_yaml(planned_shop: Shop) -> None:
    session = with_build_yaml(planned_shop.session, registry={"address": "example.invalid/mine"})
    assert str(repository_of(session, None)) == "example.invalid/mine"
    assert str(repository_of(session, "other.invalid:5000")) == "other.invalid:5000/graft"


@pytest.mark.parametrize("address", ["http://example.invalid", "example.invalid/Upper", "a b", "example.invalid:port"])
def test_an_address_that_is_none(planned_shop: Shop, address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        with_build_yaml(planned_shop.session, registry={"address": address})


def test_the_channels_of_a_push(planned_shop: Shop) -> None:
    assert channel_tags(planned_shop.session, planned_shop.planned) == ("glm-dsa-sm90",)


def test_a_template_that_gives_two_images_one_tag(planned_shop: Shop) -> None:
    session = with_build_yaml(planned_shop.session, channels=["latest"])
    planned = dataclasses.replace(planned_shop.planned, project=session.project)
    with pytest.raises(BadInput, match="'latest' is the tag of glm-dsa on sm90 and of") as problem:
        channel_tags(session, planned)
    assert "{recipe} and {arch}" in str(problem.value.cure)


def test_a_template_that_gives_no_legal_tag(planned_shop: Shop) -> None:
    session = with_build_yaml(planned_shop.session, channels=[".{recipe}-{arch}"])
    planned = dataclasses.replace(planned_shop.planned, project=session.project)
    with pytest.raises(BadInput, match="not a legal image tag"):
        channel_tags(session, planned)


def test_a_template_that_is_the_stable_channel(planned_shop: Shop) -> None:
    session = with_build_yaml(planned_shop.session, channels=["{recipe}-{arch}-stable"])
    planned = dataclasses.replace(planned_shop.planned, project=session.project)
    with pytest.raises(BadInput, match="only promote moves it"):
        channel_tags(session, planned)


@pytest.mark.parametrize(
    "channels",
    [{"candidate": "latest"}, {"candidate": "{recipe}"}, {"candidate": "{recipe}-{arch}-stable"}, {"beta": "x"}],
)
def test_channels_that_cannot_be(planned_shop: Shop, channels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="channels"):
        with_build_yaml(planned_shop.session, registry={"channels": channels})


class TestSigningKey:
    """Which private key signs."""

    def test_none_where_the_project_does_not_sign(self, planned_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GRAFT_SIGNING_KEY", raising=False)
        assert signing_key(with_build_yaml(planned_shop.session, registry={})) is None

    def test_none_where_it_does(self, planned_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GRAFT_SIGNING_KEY", raising=False)
        with pytest.raises(BadInput, match="no private key is given") as problem:
            signing_key(planned_shop.session)
        assert problem.value.where == "GRAFT_SIGNING_KEY"

    def test_the_right_one(self, planned_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GRAFT_SIGNING_KEY", str(planned_shop.root.with_name("private.pem")))
        found = signing_key(planned_shop.session)
        assert found is not None
        assert found.public.fingerprint == planned_shop.public.fingerprint

    def test_another_one(self, planned_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new_pair(tmp_path / "a.pem", tmp_path / "a.pub", None)
        monkeypatch.setenv("GRAFT_SIGNING_KEY", str(tmp_path / "a.pem"))
        with pytest.raises(BadInput, match="does not belong to the project's public key"):
            signing_key(planned_shop.session)


def test_who_publishes(planned_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "A Name")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "name@example.invalid")
    assert publisher(planned_shop.session) == "A Name <name@example.invalid>"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "somebody")
    assert publisher(planned_shop.session) == "somebody"
