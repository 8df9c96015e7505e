"""The gate's `image-config`: what the engine says of an image, and the texts of it, searched on the host."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from gate_engine import CANDIDATE, FakeEngine, FakeTest, gate

from graft.errors import GateFailed
from graft.gate import Expected, Finder, HostValue, SmokeTest, host_values, image_config
from graft.gate.config import COLLECTOR, check_config, check_files
from graft.gate.receipt import Check
from graft.gate.tests import Ended, judge
from graft.plan import ENTRYPOINT, WORKDIR

REPO = Path(__file__).parents[2]
ENV = {"PATH": "/opt/venv/bin", "VLLM_NO_USAGE_STATS": "1"}
LABELS = {"dev.graft.key": "k", "org.opencontainers.image.title": "glm-dsa for sm90"}
EXPECTED = Expected(ENV, LABELS, ENTRYPOINT, WORKDIR)
PROXY = "http://proxy.corp.example:3128"
FINDER = Finder([HostValue("the value of HTTPS_PROXY", "proxy.corp.example"), HostValue("the home folder", "/home/jo")])
TOKEN = "ghp_" + "a1B2" * 10


def attrs(**changes: Any) -> dict[str, Any]:
    config = {
        "Env": [f"{name}={value}" for name, value in ENV.items()],
        "Labels": dict(LABELS),
        "Entrypoint": list(ENTRYPOINT),
        "WorkingDir": WORKDIR,
        "User": "",
        "Cmd": None,
    }
    return {"Config": {**config, **changes}, "Author": "", "Comment": "buildkit.dockerfile.v0"}


HISTORY = [{"CreatedBy": "LABEL dev.graft.key=k", "Comment": ""}, {"CreatedBy": "ADD rootfs.tar / # buildkit"}]


def red(config: dict[str, Any], history: list[dict[str, Any]] = HISTORY) -> dict[str, str]:
    return failed(check_config(config, history, EXPECTED, FINDER))


def failed(checks: Any) -> dict[str, str]:
    found: list[Check] = list(checks)
    assert found
    return {check.id: check.detail for check in found if check.verdict == "fail"}


def test_an_image_as_planned_is_green() -> None:
    assert red(attrs()) == {}


@pytest.mark.parametrize(
    ("changes", "id", "detail"),
    [
        ({"Env": [*attrs()["Config"]["Env"], f"HTTPS_PROXY={PROXY}"]}, "env", "HTTPS_PROXY is not in the plan"),
        ({"Env": [*attrs()["Config"]["Env"], "NCCL_GRAPH_FILE=/x"]}, "env", "NCCL_GRAPH_FILE is not in the plan"),
        ({"Env": ["PATH=/opt/venv/bin"]}, "env", "VLLM_NO_USAGE_STATS is missing"),
        ({"Env": ["PATH=/bin", "VLLM_NO_USAGE_STATS=1"]}, "env", "PATH has another value"),
        ({"Labels": {**LABELS, "maintainer": "me"}}, "labels", "maintainer is not in the plan"),
        ({"Labels": {**LABELS, "dev.graft.key": "z"}}, "labels", "dev.graft.key has another value"),
        ({"Labels": None}, "labels", "dev.graft.key is missing"),
        ({"Labels": {**LABELS, "x": PROXY}}, "configuration", "the value of HTTPS_PROXY in label x"),
        ({"Labels": {**LABELS, "x": f"token {TOKEN}"}}, "configuration", "a token of GitHub in label x"),
        ({"Entrypoint": None}, "settings", "the entrypoint is not vllm serve"),
        ({"Entrypoint": ["sh", "-c", "vllm serve"]}, "settings", "the entrypoint is not vllm serve"),
        ({"Cmd": ["--api-key", "x"]}, "settings", "Cmd is set"),
        ({"Cmd": ["--config", "/home/jo/config.yaml"]}, "configuration", "the home folder in cmd"),
        ({"User": "jo"}, "settings", "User is set"),
        ({"WorkingDir": "/src"}, "settings", "the working directory is not /root"),
        ({"ExposedPorts": {"8000/tcp": {}}}, "settings", "ExposedPorts is set"),
        ({"Volumes": {"/data": {}}}, "settings", "Volumes is set"),
        ({"Healthcheck": {"Test": ["CMD", "true"]}}, "settings", "Healthcheck is set"),
        ({"OnBuild": ["RUN x"]}, "settings", "OnBuild is set"),
    ],
)
def test_each_setting_that_is_not_the_plans_is_red(changes: dict[str, Any], id: str, detail: str) -> None:
    found = red(attrs(**changes))
    assert detail in found[id]
    assert PROXY not in str(found)
    assert TOKEN not in str(found)


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (f"RUN |1 HTTPS_PROXY={PROXY} /bin/sh -c pip install x", "the value of HTTPS_PROXY"),
        ("RUN http_proxy=http://10.0.0.1:3128 make", "a proxy"),
        (f"RUN git clone https://x:{TOKEN}@host.example/y.git", "a token of GitHub"),
        ("RUN pip install --index-url https://user:s3cret@index.example/simple x", "a password in a URL"),
        ("COPY /home/jo/work/x /x", "the home folder"),
        ("RUN echo '-----BEGIN RSA PRIVATE KEY-----' >/k", "a private key"),
        ("ENV AWS=AKIA" + "ABCDEFGH12345678", "a key of AWS"),
    ],
)
def test_a_secret_in_the_history_is_red_and_not_shown(step: str, what: str) -> None:
    found = red(attrs(), [{"CreatedBy": "LABEL x"}, {"CreatedBy": step}, {"CreatedBy": "ADD rootfs.tar /"}])
    assert f"{what} in step 2 from the base" in found["history"]
    assert "s3cret" not in str(found)
    assert TOKEN not in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "https://docs.example/a:b",
        "https://$USER:$PASSWORD@host",
        "unset http_proxy; http_proxy=$proxy",
        "proxy.corp.example.org2x",
        "/home/john",
        "sk-learn is not a key, nor is pypi-server",
    ],
)
def test_what_only_looks_alike_is_green(text: str) -> None:
    assert FINDER.find(text.replace(".org2x", "x")) == []


def collected(files: dict[str, str], said: int | None = None) -> str:
    lines = [{"file": n, "data": base64.b64encode(zlib.compress(t.encode())).decode()} for n, t in files.items()]
    return "\n".join(json.dumps(line) for line in [*lines, {"files": len(files) if said is None else said}])


def test_texts_without_anything_are_green() -> None:
    assert failed(check_files(collected({"/etc/passwd": "root:x:0:0"}), FINDER)) == {}


def test_a_value_of_this_host_in_a_text_is_red_and_not_shown() -> None:
    found = failed(check_files(collected({"/etc/pip.conf": f"proxy = {PROXY}", "/etc/fine": ""}), FINDER))
    assert found == {"files": "the value of HTTPS_PROXY in /etc/pip.conf"}


def test_a_file_that_is_named_so_is_red_and_not_shown() -> None:
    found = failed(check_files(collected({"/etc/ssl/proxy.corp.example.crt": ""}), FINDER))
    assert found == {"files": "the value of HTTPS_PROXY in the name of a file"}


@pytest.mark.parametrize(
    "stdout", ["", "noise", collected({"/a": ""}, said=2), '{"file": "/a", "data": "x"}\n{"files": 1}']
)
def test_texts_that_did_not_all_come_are_red(stdout: str) -> None:
    assert "files-read" in failed(check_files(stdout, FINDER))


def test_a_text_that_is_too_big_to_be_searched_is_red() -> None:
    found = failed(check_files('{"file": "/a", "bytes": 5000000}\n{"files": 1}', FINDER))
    assert found == {"files-read": "/a has 5000000 bytes: too big to be searched"}


class Inspected(FakeEngine):
    """An engine that also says what an image is made of."""

    def inspect_image(self, image: str) -> dict[str, Any]:
        assert image == CANDIDATE
        return attrs()

    def history(self, image: str) -> list[dict[str, Any]]:
        assert image == CANDIDATE
        return HISTORY


def config_test(engine: Inspected) -> SmokeTest:
    return image_config(engine, CANDIDATE, EXPECTED, FINDER)  # type: ignore[arg-type]


def test_it_is_a_test_among_the_others(tmp_path: Path) -> None:
    engine = Inspected({"core": FakeTest(), "collect": FakeTest(stdout=collected({"/etc/x": "y"}))})
    receipt = gate(engine, tmp_path, tests=[SmokeTest("core", "core.py"), config_test(engine)])
    assert [(test.id, test.verdict) for test in receipt.tests] == [("core", "pass"), ("image-config", "pass")]
    ids = [check.id for check in receipt.tests[1].checks]
    assert ids == ["env", "labels", "settings", "configuration", "history", "files-read", "files"]
    assert engine.created[1]["entrypoint"][-1].endswith(COLLECTOR)


def test_a_red_one_stops_the_tag(tmp_path: Path) -> None:
    engine = Inspected({"collect": FakeTest(stdout=collected({"/etc/x": PROXY}))})
    with pytest.raises(GateFailed, match=r"image-config \(fail\)"):
        gate(engine, tmp_path, tests=[config_test(engine)])


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        (Ended(None, collected({}), "", 1.0, 1.0), "hang"),
        (Ended(137, collected({}), "", 1.0), "crash"),
        (Ended(1, "Traceback", "", 1.0), "crash"),
        (Ended(0, "", "", 1.0), "fail"),
    ],
)
def test_a_collector_that_does_not_end_well_is_red(ended: Ended, verdict: str) -> None:
    result = judge(config_test(Inspected({})), ended)
    assert result.verdict == verdict
    assert result.detail


def values(tmp_path: Path, env: dict[str, str], **named: str | None) -> dict[str, str]:
    found = host_values(
        tmp_path / "project",
        {"index": "https://index.example/simple", **named},
        env=env,
        home=tmp_path,
        etc=tmp_path / "apt",
        certificates=tmp_path / "ca",
        host="build-7",
    )
    assert all(value.text not in repr(value) for value in found)
    # The first that names a value is the one that is said.
    return {value.text: value.name for value in reversed(found)}


def test_the_values_of_a_host_are_found_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt/sources.list").write_text("deb http://mirror.example/debian bookworm main\n")
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(
        json.dumps({"auths": {"registry.example:5000": {}, "https://index.docker.io/v1/": {}}})
    )
    (tmp_path / "ca").mkdir()
    body = "\n".join(["A" * 64, "B" * 63 + "1", "CCCC"])
    (tmp_path / "ca/corp.crt").write_text(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    env = {
        "HTTPS_PROXY": "http://jo:pa55word@proxy.example:3128",
        "http_proxy": "localhost:3128",
        "UV_INDEX": "work=https://uv.example/simple",
        "HF_TOKEN": "0123456789abcdef",
        "NO_PROXY": "nothing.example",
        "HOME": "/irrelevant-1",
    }
    found = values(tmp_path, env, **{"indexes.cu": "https://cu.example/"})
    assert found == {
        "proxy.example": "the value of HTTPS_PROXY",
        "pa55word": "the value of HTTPS_PROXY (its password)",
        "localhost:3128": "the value of http_proxy",
        "uv.example": "the value of UV_INDEX",
        "0123456789abcdef": "the value of HF_TOKEN",
        "index.example": "build.yaml's index",
        "cu.example": "build.yaml's indexes.cu",
        "mirror.example": "an archive of this host's apt",
        "registry.example": "a registry of Docker's configuration",
        str(tmp_path / "project"): "the folder of the project",
        str(tmp_path): "the home folder",
        "B" * 63 + "1": "a certificate that was added to this host",
        "build-7": "the name of this host",
    }


def test_what_every_image_has_is_no_value_of_a_host(tmp_path: Path) -> None:
    found = host_values(Path("/opt"), {}, env={"http_proxy": "proxy"}, home=Path("/root"), etc=tmp_path, host="debian")
    texts = {value.text for value in found}
    assert not texts & {"/opt", "/root", "debian", "proxy"}


def test_a_configuration_that_cannot_be_read_gives_no_values(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text("[")
    assert "a registry of Docker's configuration" not in values(tmp_path, {}).values()


def test_the_expected_settings_are_those_of_the_template() -> None:
    text = (REPO / "images/stages/runtime.j2").read_text()
    assert f"\nENTRYPOINT {json.dumps(list(ENTRYPOINT))}\n" in text
    assert f"\nWORKDIR {WORKDIR}\n" in text
