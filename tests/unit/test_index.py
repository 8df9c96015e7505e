"""Where the index is looked for, and how its pages are read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from web import Answer, Web

from graft import index, net
from graft.errors import BadInput, FetchFailed
from graft.index import Indexes, Locator, discover

FILE = "torch-2.13.0+cu130-py3-none-any.whl"
SHA = hashlib.sha256(b"right").hexdigest()
OTHER = hashlib.sha256(b"wrong").hexdigest()


@pytest.fixture(autouse=True)
def _no_host_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The host's own configuration below /etc is not looked at."""
    real = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: not str(path).startswith("/etc/") and real(path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def uv_toml(home: Path, text: str) -> None:
    (home / ".config/uv").mkdir(parents=True, exist_ok=True)
    (home / ".config/uv/uv.toml").write_text(text)


def pip_conf(home: Path, text: str, where: str = ".config/pip/pip.conf") -> None:
    (home / where).parent.mkdir(parents=True, exist_ok=True)
    (home / where).write_text(text)


def test_the_order_of_sources(tmp_path: Path) -> None:
    env: dict[str, str] = {}
    steps = []

    def found(named: str | None = None) -> None:
        indexes = discover(named, env, tmp_path)
        steps.append((indexes.urls[0], indexes.source))

    found()
    pip_conf(tmp_path, "[global]\nindex-url = https://pipconf/simple/\n")
    found()
    env["PIP_INDEX_URL"] = "https://pipenv/simple"
    found()
    uv_toml(tmp_path, 'index-url = "https://uvtoml/simple"\n')
    found()
    env["UV_INDEX_URL"] = "https://uvold/simple"
    found()
    env["UV_DEFAULT_INDEX"] = "https://uvenv/simple"
    found()
    found("https://named/simple")
    assert steps == [
        (index.pip_builtin(), "pip's default"),
        ("https://pipconf/simple", "pip's configuration"),
        ("https://pipenv/simple", "pip's configuration"),
        ("https://uvtoml/simple", "uv's configuration"),
        ("https://uvold/simple", "uv's configuration"),
        ("https://uvenv/simple", "uv's configuration"),
        ("https://named/simple", "build.yaml"),
    ]


def test_extra_indexes_follow_the_default_each_once(tmp_path: Path) -> None:
    env = {
        "UV_DEFAULT_INDEX": "mine=https://d/simple/",
        "UV_INDEX": "a=https://a/simple https://b/simple?x=1",
        "UV_EXTRA_INDEX_URL": "https://c/simple",
        "PIP_EXTRA_INDEX_URL": "https://a/simple https://e/simple",
    }
    urls = discover(None, env, tmp_path).urls
    assert urls == tuple(f"https://{u}" for u in ("d/simple", "a/simple", "b/simple?x=1", "c/simple", "e/simple"))


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ('index-url = "https://a/s"\nextra-index-url = ["https://b/s"]\n', ("https://a/s", "https://b/s")),
        ('[pip]\nindex-url = "https://a/s"\n', ("https://a/s",)),
        (
            '[[index]]\nname = "x"\nurl = "https://b/s"\n[[index]]\nurl = "https://a/s"\ndefault = true\n',
            ("https://a/s", "https://b/s"),
        ),
    ],
)
def test_forms_of_uvs_configuration(tmp_path: Path, text: str, urls: tuple[str, ...]) -> None:
    uv_toml(tmp_path, text)
    assert discover(None, {}, tmp_path).urls == urls
    moved = tmp_path / "mine.toml"
    (tmp_path / ".config/uv/uv.toml").rename(moved)
    assert discover(None, {"UV_CONFIG_FILE": str(moved)}, tmp_path).urls == urls


@pytest.mark.parametrize("where", [".config/pip/pip.conf", ".pip/pip.conf"])
def test_places_and_sections_of_pips_configuration(tmp_path: Path, where: str) -> None:
    pip_conf(
        tmp_path,
        "[install]\nindex-url = https://a/s\n[global]\nextra-index-url =\n  https://b/s\n  https://c/s\n",
        where,
    )
    assert discover(None, {}, tmp_path).urls == ("https://a/s", "https://b/s", "https://c/s")
    assert discover(None, {"PIP_CONFIG_FILE": "/dev/null"}, tmp_path).source == "pip's default"


def test_the_configuration_folder_may_lie_elsewhere(tmp_path: Path) -> None:
    pip_conf(tmp_path / "x", "[global]\nindex-url = https://a/s\n", "pip/pip.conf")
    assert discover(None, {"XDG_CONFIG_HOME": str(tmp_path / "x")}, tmp_path / "nobody").urls == ("https://a/s",)


def test_a_broken_configuration_is_an_error_with_its_file(tmp_path: Path) -> None:
    uv_toml(tmp_path, "index-url = https://secret@a/s\n")
    with pytest.raises(BadInput) as caught:
        discover(None, {}, tmp_path)
    assert str(caught.value.where).endswith("uv.toml")
    assert "secret" not in str(caught.value.as_dict())
    (tmp_path / ".config/uv/uv.toml").unlink()
    pip_conf(tmp_path, "index-url = https://secret@a/s\n")
    with pytest.raises(BadInput) as caught:
        discover(None, {}, tmp_path)
    assert str(caught.value.where).endswith("pip.conf")
    assert "secret" not in str(caught.value.as_dict())


def page(digest: str | None, name: str = FILE) -> Answer:
    """A JSON page of the simple API with one file."""
    hashes = {"sha256": digest} if digest else {}
    data = {
        "files": [
            {"filename": "other.whl", "url": "x"},
            {"filename": name, "url": "../../files/t.whl", "hashes": hashes},
        ]
    }
    return Answer(json.dumps(data).encode(), kind="application/vnd.pypi.simple.v1+json")


def html(digest: str | None) -> Answer:
    fragment = f"#sha256={digest}" if digest else ""
    text = f'<a href="x">x</a><a data-x="1" href="../../files/torch-2.13.0%2Bcu130-py3-none-any.whl{fragment}">t</a>'
    return Answer(text.encode(), kind="text/html; charset=utf-8")


def locate(*urls: str) -> str:
    return Locator(Indexes(urls, "uv's configuration"), net.session()).locate("Torch", FILE, SHA)


@pytest.mark.parametrize("digest", [SHA, None])
def test_both_forms_of_the_simple_api_are_read(server: Web, digest: str | None) -> None:
    server.serve("/json/simple/torch/", page(digest))
    server.serve("/html/simple/torch/", html(digest))
    assert locate(server.url + "/json/simple") == server.url + "/json/files/t.whl"
    assert locate(server.url + "/html/simple/") == server.url + "/html/files/torch-2.13.0%2Bcu130-py3-none-any.whl"
    assert "application/vnd.pypi.simple.v1+json" in server.seen[0][1]["Accept"]


@pytest.mark.parametrize(
    ("json_says", "html_says", "reason"),
    [
        (False, "", None),
        (None, "", None),
        (True, 'data-yanked=""', ""),
        ("broken  on\x1b[2J Linux", 'data-yanked="broken on [2J Linux"', "broken on [2J Linux"),
        ("", "data-yanked", ""),
        ("x" * 500, f'data-yanked="{"x" * 500}"', "x" * 200),
    ],
)
def test_a_file_that_was_taken_back_says_why(
    server: Web, json_says: object, html_says: str, reason: str | None
) -> None:
    files = [{"filename": "other.whl", "url": "x", "yanked": "no"}, {"filename": FILE, "url": "t", "yanked": json_says}]
    body = json.dumps({"files": files}).encode()
    server.serve("/json/torch/", Answer(body, kind="application/vnd.pypi.simple.v1+json"))
    text = f'<a data-yanked="no" href="x.whl">x</a><a {html_says} href="{FILE.replace("+", "%2B")}">t</a>'
    server.serve("/html/torch/", Answer(text.encode(), kind="text/html"))
    for form in ("json", "html"):
        found = Locator(Indexes((f"{server.url}/{form}",), "pip's default"), net.session()).yanked("torch", FILE)
        assert found == reason


def test_a_local_index_is_read_from_disk(tmp_path: Path) -> None:
    (tmp_path / "an index/torch").mkdir(parents=True)
    (tmp_path / "an index/torch/index.html").write_bytes(html(SHA).body)
    found = locate((tmp_path / "an index").as_uri())
    assert found == (tmp_path / "files").as_uri() + "/torch-2.13.0%2Bcu130-py3-none-any.whl"


def refused(*urls: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        locate(*urls)
    said = str(caught.value.as_dict())
    for part in ("127.0.0.1", "://", "secret"):
        assert part not in said
    assert caught.value.exit_code == 4
    assert caught.value.cure
    return caught.value


@pytest.mark.parametrize("form", [page, html])
def test_an_index_with_another_hash_is_refused(server: Web, form: object) -> None:
    assert callable(form)
    server.serve("/simple/torch/", form(OTHER))
    problem = refused(server.url.replace("//", "//u:secret@") + "/simple")
    assert problem.what == f"{FILE}: the index now serves other bytes: sha256 {OTHER}; the lock says {SHA}"
    assert "make lock" in str(problem.cure)


def test_the_next_index_is_asked_for_the_locked_bytes(server: Web) -> None:
    server.serve("/a/simple/torch/", page(OTHER))
    server.serve("/c/simple/torch/", page(SHA))
    urls = [f"{server.url}/{name}/simple" for name in "abc"]
    assert locate(*urls) == server.url + "/c/files/t.whl"
    assert [path for path, _ in server.seen] == [f"/{name}/simple/torch/" for name in "abc"]


def test_a_file_that_no_index_has_is_refused(server: Web) -> None:
    server.serve("/simple/torch/", page(SHA, name="torch-1.whl"))
    problem = refused(server.url + "/simple", server.url + "/none")
    assert problem.what == f"{FILE}: not on the index (uv's configuration)"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"files": [1]}', b'{"files": [{}]}', b"{}", b'{"files": null}'])
def test_an_answer_that_is_no_page_is_refused(server: Web, body: bytes) -> None:
    server.serve("/simple/torch/", Answer(body, kind="application/json"))
    assert "not a page of the simple API (uv's configuration)" in refused(server.url + "/simple").what


def test_a_refusing_index_is_an_error(server: Web) -> None:
    server.serve("/simple/torch/", Answer(status=403))
    assert "HTTP 403" in refused(server.url.replace("//", "//u:secret@") + "/simple").what
