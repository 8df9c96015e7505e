"""Patches on somebody's image, without an engine: names of images, what is pristine, the layer, what may differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import git_id, make_lock, sha
from patchwork import patch

from graft.errors import BadInput, BuildFailed, PatchMismatch
from graft.patching import SourceTree
from graft.patching.entry import blob_id
from graft.store import CHECKED_MTIME
from graft.trial import onto
from graft.trial.containers import Put
from graft.trial.layer import Layer, check_base, check_same, onto_key
from graft.trial.outcome import RunResult
from graft.trial.probe import FileFacts, Installed, check_installed, check_paths, recorded_names
from graft.trial.reference import Base, Reference, chosen_tag, default_tag, familiar, parse_reference

ID = "sha256:" + "a" * 64
DIGEST = "sha256:" + "b" * 64
KEY = "0123456789abcdef" * 4


# Names


@pytest.mark.parametrize(
    ("text", "reference", "names_registry"),
    [
        ("vllm", Reference("vllm", None, None), False),
        ("vllm/vllm-openai:nightly", Reference("vllm/vllm-openai", "nightly", None), False),
        ("docker.io/vllm/vllm-openai:v1", Reference("docker.io/vllm/vllm-openai", "v1", None), True),
        ("localhost/a:b", Reference("localhost/a", "b", None), True),
        ("host:5000/a/b", Reference("host:5000/a/b", None, None), True),
        (f"host.example/a:t@{DIGEST}", Reference("host.example/a", "t", DIGEST), True),
        (f"a@{DIGEST}", Reference("a", None, DIGEST), False),
    ],
)
def test_references(text: str, reference: Reference, names_registry: bool) -> None:
    found = parse_reference(text, "IMAGE")
    assert found == reference
    assert str(found) == text
    assert found.names_registry == names_registry


@pytest.mark.parametrize(
    "text", ["", "A/b", "a:", "a b", "a@sha256:12", "-a", "a:b:c", "a\n", "a" * 401, "a/../b", "$x"]
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(BadInput, match="not a reference"):
        parse_reference(text, "IMAGE")


def base(reference: str | None, tags: list[str] | None = None, digest: str | None = None, **attrs: Any) -> Base:
    known = {"Id": ID, "RepoTags": tags or [], "RepoDigests": [], "Config": {}, **attrs}
    return Base(ID, parse_reference(reference, "IMAGE") if reference else None, digest, known)


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        (base("host.example/a:nightly"), "host.example/a:nightly-graft-0123456789ab"),
        (base("a"), "a:latest-graft-0123456789ab"),
        (base(f"a@{DIGEST}"), "a:graft-0123456789ab"),
        (base(f"a:t@{DIGEST}"), "a:t-graft-0123456789ab"),
        (base(None, ["mine:v1"]), "mine:v1-graft-0123456789ab"),
    ],
)
def test_the_default_tag_follows_the_image(image: Base, tag: str) -> None:
    assert default_tag(image, KEY) == tag


def test_a_tag_that_cannot_be_made() -> None:
    with pytest.raises(BadInput, match="longer than 128"):
        default_tag(base("a:" + "t" * 120), KEY)
    with pytest.raises(BadInput, match="without a name"):
        default_tag(base(None), KEY)


def test_a_chosen_tag_hides_nothing() -> None:
    image = base("docker.io/vllm/v:n", ["vllm/v:n"])
    assert chosen_tag("mine", image) == "mine:latest"
    for text in ("vllm/v:n", "docker.io/vllm/v:n", f"mine@{DIGEST}", "Mine"):
        with pytest.raises(BadInput):
            chosen_tag(text, image)
    assert familiar("docker.io/library/debian:12") == "debian:12"


def test_a_base_needs_a_name_and_no_triggers() -> None:
    check_base(base("a", ["a:latest"]))
    check_base(base(f"a@{DIGEST}", RepoDigests=[f"a@{DIGEST}"]))
    with pytest.raises(BadInput, match="no name"):
        check_base(base(None))
    with pytest.raises(BadInput, match="ONBUILD"):
        check_base(base("a", ["a:latest"], Config={"OnBuild": ["COPY . ."]}))


def test_its_identity_is_the_digest_when_there_is_one() -> None:
    assert base("a").identity == ID
    assert base("a", digest=f"a@{DIGEST}").identity == f"a@{DIGEST}"


# Pristine

FILES = {"vllm/config.py": b"pristine\n"}


def known(before: str, after: str) -> dict[str, onto.Known]:
    return {"vllm/config.py": onto.Known(before, frozenset({after}))}


PRISTINE, PATCHED = blob_id(b"pristine\n"), blob_id(b"patched\n")


def test_the_lock_knows_its_own_files() -> None:
    found = onto.known_blobs(make_lock(), "vllm")
    assert found == {"vllm/config.py": onto.Known(git_id("before"), frozenset({git_id("after")}))}
    assert onto.is_as_locked({"vllm/config.py": git_id("before")}, found)
    assert not onto.is_as_locked({"vllm/config.py": git_id("after")}, found)
    assert not onto.is_as_locked({"vllm/config.py": git_id("before"), "vllm/new.py": None}, found)
    assert onto.known_blobs(None, "vllm") == onto.known_blobs(make_lock(), "torch") == {}


def test_a_later_patch_does_not_change_what_is_pristine() -> None:
    def second(lock: dict[str, Any]) -> None:
        pins = lock["patches"]["vllm"][0]["patches"]
        pins.append({**pins[0], "id": "more"})
        pins[1]["files"] = {"vllm/config.py": {"before": git_id("after"), "after": git_id("last")}}

    found = onto.known_blobs(make_lock(second), "vllm")["vllm/config.py"]
    assert found == onto.Known(git_id("before"), frozenset({git_id("after"), git_id("last")}))


@pytest.mark.parametrize("files", [FILES, None])
def test_pristine_files_pass(files: dict[str, bytes] | None) -> None:
    onto.check_pristine("vllm", "0.32.0", {"vllm/config.py": PRISTINE}, known(PRISTINE, PATCHED), files)


@pytest.mark.parametrize(
    ("blob", "locked", "files", "says"),
    [
        (PATCHED, known(PRISTINE, PATCHED), FILES, "patched already"),
        (PATCHED, known(PRISTINE, PATCHED), None, "patched already"),
        (blob_id(b"other"), known(PRISTINE, PATCHED), FILES, "which vllm 9 has"),
        (blob_id(b"other"), known(PRISTINE, PATCHED), None, "the index has no vllm 9"),
        (PRISTINE, {}, None, "the index has no vllm 9"),
        (None, known(PRISTINE, PATCHED), FILES, "blob id is none"),
        (PRISTINE, {}, {}, "expected none"),
    ],
)
def test_other_files_are_named_with_both_ids(
    blob: str | None, locked: dict[str, onto.Known], files: dict[str, bytes] | None, says: str
) -> None:
    with pytest.raises(PatchMismatch, match=says) as refused:
        onto.check_pristine("vllm", "9", {"vllm/config.py": blob}, locked, files)
    assert "vllm/config.py is not pristine" in refused.value.what
    assert str(blob or "none") in refused.value.what


@pytest.mark.parametrize(
    ("when", "version", "holds"),
    [
        ({"version": "<0.33"}, "0.32.0", True),
        ({"version": "<0.33"}, "0.32.1.dev3+gabc", True),
        ({"version": "<0.33"}, "0.33.0", False),
        ({"arches": ["sm90"]}, "1", True),
        ({"arches": ["sm120"]}, "1", False),
        ({"version": "<0.33"}, "nightly", False),
    ],
)
def test_the_installed_version_must_be_meant(when: dict[str, Any], version: str, holds: bool) -> None:
    chosen = [patch(b"", when=when)]
    if holds:
        onto.check_version("vllm", chosen, version, "sm90")
    else:
        with pytest.raises(PatchMismatch, match=f"{version}"):
            onto.check_version("vllm", chosen, version, "sm90")


# What is installed


def facts(**changes: Any) -> FileFacts:
    given = {
        "blob": PRISTINE,
        "is_link": False,
        "executable": False,
        "recorded": ["sha256=x"],
        "cached": False,
        "twins": [],
        "copies": [],
    }
    return FileFacts.model_validate({**given, **changes})


def installed(*, file: FileFacts | None = None, **changes: Any) -> Installed:
    given: dict[str, Any] = {
        "python": "3.12.1",
        "executable": "/usr/bin/python3",
        "others": {},
        "found": ["/site"],
        "root": "/site",
        "version": "0.32.0",
        "record": "vllm-0.32.0.dist-info/RECORD",
        "packages": {"vllm": "/site/vllm/__init__.py"},
        "files": {"vllm/config.py": (file or facts()).model_dump()},
    }
    return Installed.model_validate({**given, **changes})


def test_what_python_uses_once_is_taken() -> None:
    check_installed(installed(), "vllm")
    check_installed(installed(file=facts(blob=None, recorded=[])), "vllm")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (installed(found=["/site", "/other"]), "installed 2 times"),
        (installed(record=None), "no RECORD"),
        (installed(packages={"vllm": "/work/vllm/__init__.py"}), "imports vllm from /work"),
        (installed(packages={"vllm": None}), "imports vllm from None"),
        (installed(file=facts(is_link=True)), "symbolic link"),
        (installed(file=facts(recorded=[])), "listed 0 times"),
        (installed(file=facts(recorded=["a", "b"])), "listed 2 times"),
        (installed(file=facts(twins=["config.so"])), "compiled twin"),
        (installed(file=facts(copies=["/other/vllm/config.py"])), "a second time"),
    ],
)
def test_what_would_win_over_a_patched_file_is_refused(found: Installed, says: str) -> None:
    with pytest.raises(PatchMismatch, match=says):
        check_installed(found, "vllm")


def test_paths_that_a_layer_cannot_reach() -> None:
    header = {"include/norm.cuh": "flashinfer/data/include/norm.cuh"}
    check_paths(header, [], {})
    check_paths({"flashinfer/a.py": "flashinfer/a.py"}, [], {"flashinfer-jit-cache": "1"})
    for paths, deleted, compiled, says in (
        ({"tests/a.py": None}, [], {}, "not installed"),
        (header, ["include/norm.cuh"], {}, "deleted"),
        (header, [], {"flashinfer-jit-cache": "0.7"}, "compiled into flashinfer-jit-cache 0.7"),
    ):
        with pytest.raises(PatchMismatch, match=says):
            check_paths(paths, deleted, compiled)  # type: ignore[arg-type]


def test_record_names_quoted_files() -> None:
    assert recorded_names(b'a.py,sha256=x,1\r\n"b, c.py",,\n\n') == ["a.py", "b, c.py"]


# The layer


def layer(user: str = "", created: str = "2026-11-01T10:00:00.5Z", **config: Any) -> Layer:
    image = base("a", ["a:latest"], Created=created, Config={"User": user, **config}, RootFS={"Layers": ["one", "two"]})
    files = {"vllm/config.py": (Put(b"old"), Put(b"new")), "vllm/n.py": (Put(None), Put(b"n", True))}
    return Layer(image, installed(), files, {"dev.graft.onto.key": "k$y"}, SourceTree({}), {})


def test_the_layer_is_one_run_of_the_image_s_python_without_a_shell() -> None:
    lines = layer().dockerfile("graft-onto-base:x").splitlines()
    assert lines == [
        "FROM graft-onto-base:x AS onto",
        "RUN --network=none --mount=type=bind,from=layer,target=/run/graft "
        '["/usr/bin/python3", "-I", "-B", "/run/graft/apply-onto.py", "/run/graft/job.json"]',
        'LABEL dev.graft.onto.key="k\\$y"',
    ]


def test_root_makes_the_layer_and_the_user_comes_back() -> None:
    lines = layer(user="app:1000").dockerfile("b").splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 0", 'USER "app:1000"']
    assert lines.index("USER 0") < 2 < lines.index('USER "app:1000"')


def test_the_layer_is_newer_than_its_base_and_always_the_same() -> None:
    assert layer().epoch == 1793527201
    assert layer(created="1970-01-01T00:00:00Z").epoch == CHECKED_MTIME
    assert layer(created="").epoch == CHECKED_MTIME
    assert layer().job()["files"] == {
        "vllm/config.py": {"before": sha("old"), "after": sha("new"), "executable": False},
        "vllm/n.py": {"before": None, "after": sha("n"), "executable": True},
    }


def test_nothing_else_of_the_image_may_differ() -> None:
    made = layer(user="app", Env=["A=b"], Labels={"mine": "1"})
    good: dict[str, Any] = {
        "RootFS": {"Layers": ["one", "two", "three"]},
        "Config": {"User": "app", "Env": ["A=b"], "Labels": {"mine": "1", "dev.graft.onto.key": "k$y"}, "Cmd": None},
    }
    check_same(made, good)
    for change in (
        {"RootFS": {"Layers": ["one", "two"]}},
        {"RootFS": {"Layers": ["one", "other", "three"]}},
        {"RootFS": {"Layers": ["one", "two", "three", "four"]}},
        *(
            {"Config": {**good["Config"], **config}}
            for config in ({"User": "0"}, {"Env": []}, {"Labels": {"mine": "1"}}, {"Cmd": ["x"]}, {"Entrypoint": ["x"]})
        ),
    ):
        with pytest.raises(BuildFailed):
            check_same(made, {**good, **change})


def test_the_key_follows_the_inputs_and_the_scripts(tmp_path: Path) -> None:
    for name in ("apply-onto.py", "overlay-wheel.py"):
        (tmp_path / name).write_text("1")
    one = onto_key({"base": ID, "patches": [["a", sha("a")]]}, tmp_path)
    assert onto_key({"base": ID, "patches": [["a", sha("a")]]}, tmp_path) == one
    assert onto_key({"base": ID, "patches": [["a", sha("b")]]}, tmp_path) != one
    (tmp_path / "apply-onto.py").write_text("2")
    assert onto_key({"base": ID, "patches": [["a", sha("a")]]}, tmp_path) != one


def test_labels_name_every_patch_with_its_bytes() -> None:
    made = onto.labels("base", "vllm", "0.32.0", {"a": sha("a"), "b": sha("b")}, KEY)
    assert made["dev.graft.onto.patches"] == f"vllm/a@sha256:{sha('a')} vllm/b@sha256:{sha('b')}"
    assert set(made) == {f"dev.graft.onto.{name}" for name in ("base", "component", "version", "patches", "key")}


# The receipt


def receipt(verdict: str = "red-green") -> onto.OntoReceipt:
    run = RunResult(state="green", passed=1, failed=0, errors=0, skipped=0, seconds=1.0, detail="")
    one = {"id": "a", "sha256": sha("a"), "test_sha256": sha("t"), "verdict": verdict, "red": run, "green": run}
    return onto.OntoReceipt.model_validate(
        {
            "image_id": ID,
            "base_id": ID,
            "base": "b",
            "component": "vllm",
            "version": "1",
            "python": "3.12.1",
            "key": KEY,
            "tests_digest": sha("tests"),
            "patches": (onto.OntoPatch.model_validate(one),),
            "files": {},
            "started": "2026-11-01T00:00:00Z",
            "seconds": 1.0,
            "host": {"system": "s", "kernel": "k", "machine": "m", "cpus": 1, "memory_gb": 1.0},
            "engine": "e",
        }
    )


def test_a_receipt_counts_for_its_image_key_and_tests(tmp_path: Path) -> None:
    assert onto.find_receipt(tmp_path, ID, KEY, sha("tests")) is None
    onto.write_receipt(tmp_path, receipt())
    assert onto.receipt_file(tmp_path, ID) == tmp_path / ("a" * 12) / "onto.json"
    assert onto.find_receipt(tmp_path, ID, KEY, sha("tests")) == receipt()
    assert onto.find_receipt(tmp_path, ID, KEY[::-1], sha("tests")) is None
    assert onto.find_receipt(tmp_path, ID, KEY, sha("other")) is None
    other = "sha256:" + "a" * 12 + "c" * 52
    assert onto.find_receipt(tmp_path, other, KEY, sha("tests")) is None
    onto.write_receipt(tmp_path, receipt("red-red"))
    assert onto.find_receipt(tmp_path, ID, KEY, sha("tests")) is None
    onto.receipt_file(tmp_path, ID).write_text("{")
    assert onto.find_receipt(tmp_path, ID, KEY, sha("tests")) is None
