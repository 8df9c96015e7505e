"""Where the package index is, and where it keeps a locked file.

Addresses are looked up at run time and never written down: build.yaml's `index` where a user names one, else what
uv or pip are configured for on this host, else pip's own default. Both forms of the simple API are read (JSON of
PEP 691, HTML of PEP 503).
"""

from __future__ import annotations

import configparser
import html.parser
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import canonicalize_name

from graft import net
from graft.errors import BadInput, FetchFailed

#: A yanked file's reason is cut to this many characters.
REASON_LENGTH = 200
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2, application/vnd.pypi.simple.v1+html;q=0.1"


@dataclass(frozen=True)
class Indexes:
    """Addresses of simple indexes, in the order they are asked; source says who named the first (for messages)."""

    urls: tuple[str, ...]
    source: str


def discover(named: str | None, env: Mapping[str, str] | None = None, home: Path | None = None) -> Indexes:
    """The indexes of this host. named: build.yaml's `index`, or None."""
    if named is not None:
        return Indexes((named,), "build.yaml")
    env = os.environ if env is None else env
    home = Path.home() if home is None else home
    uv_default, uv_extra = _from_uv(env, home)
    pip_default, pip_extra = _from_pip(env, home)
    for default, source in ((uv_default, "uv's configuration"), (pip_default, "pip's configuration")):
        if default:
            return Indexes(_unique([default, *uv_extra, *pip_extra]), source)
    return Indexes(_unique([pip_builtin(), *uv_extra, *pip_extra]), "pip's default")


def pip_builtin() -> str:
    """The index that pip asks when nobody configures one; pip itself is the only place that says so."""
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


@dataclass(frozen=True)
class IndexFile:
    """One file of a page of the simple API. sha256: empty where the index gives none.

    yanked: why its maker took it back (PEP 592; may be empty); None when it was not.
    """

    name: str
    url: str
    sha256: str = ""
    yanked: str | None = None


class Locator:
    """Finds the address of a locked file: same file name, and the same hash where the index gives one."""

    def __init__(self, indexes: Indexes, client: net.Session) -> None:
        self._indexes = indexes
        self._client = client

    def locate(self, distribution: str, file: str, sha256: str) -> str:
        """The address of a file. Raises FetchFailed when no index serves these bytes."""
        other = ""
        for index in self._indexes.urls:
            for found in self._files(index, canonicalize_name(distribution)):
                if found.name != file:
                    continue
                if found.sha256 in ("", sha256):
                    return found.url
                other = found.sha256
        if other:
            raise FetchFailed(
                f"{file}: the index now serves other bytes: sha256 {other}; the lock says {sha256}",
                cure="find out why before anything else; if the new file is the right one: make lock",
            )
        raise FetchFailed(
            f"{file}: not on the index ({self._indexes.source})",
            cure="choose another version in the recipe, then run: make lock",
        )

    def yanked(self, distribution: str, file: str) -> str | None:
        """Why the maker of a file took it back, as the first index that has it says; None when nobody did."""
        for index in self._indexes.urls:
            for found in self._files(index, canonicalize_name(distribution)):
                if found.name == file:
                    return found.yanked
        return None

    def _files(self, index: str, name: str) -> Iterable[IndexFile]:
        base = f"{index.rstrip('/')}/{name}/"
        if urlsplit(base).scheme == "file":
            page = Path(unquote(urlsplit(base).path)) / "index.html"
            return _html_files(page.read_text(encoding="utf-8"), base) if page.is_file() else ()
        response = net.get(self._client, base, accept=ACCEPT, what=name)
        if response is None:
            return ()
        if "json" in response.headers.get("Content-Type", ""):
            try:
                return [
                    IndexFile(
                        f["filename"],
                        urljoin(response.url, f["url"]),
                        f.get("hashes", {}).get("sha256", ""),
                        _reason(f.get("yanked", False)),
                    )
                    for f in response.json()["files"]
                ]
            except (ValueError, KeyError, TypeError, AttributeError):
                raise FetchFailed(
                    f"{name}: the index's answer is not a page of the simple API ({self._indexes.source})",
                    cure="check the address of the index that this host or build.yaml is configured for",
                ) from None
        return _html_files(response.text, response.url)


def _html_files(text: str, base: str) -> list[IndexFile]:
    page = _Links()
    page.feed(text)
    found = []
    for href, yanked in page.links:
        url = urljoin(base, href)
        parts = urlsplit(url)
        digest = parts.fragment.removeprefix("sha256=") if parts.fragment.startswith("sha256=") else ""
        found.append(IndexFile(unquote(parts.path.rsplit("/", 1)[-1]), url.partition("#")[0], digest, yanked))
    return found


def _reason(yanked: object) -> str | None:
    """`yanked` of PEP 691: false, true, or the reason. People see it: one line, without what steers terminals."""
    if yanked is False or yanked is None:
        return None
    text = yanked if isinstance(yanked, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:REASON_LENGTH]


class _Links(html.parser.HTMLParser):
    """(href, why it was yanked) of each link."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a" and found.get("href"):
            yanked = _reason(found["data-yanked"] or True) if "data-yanked" in found else None
            self.links.append((str(found["href"]), yanked))


def _from_uv(env: Mapping[str, str], home: Path) -> tuple[str | None, list[str]]:
    extra = [_unnamed(url) for url in f"{env.get('UV_INDEX', '')} {env.get('UV_EXTRA_INDEX_URL', '')}".split()]
    default = _unnamed(env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL") or "") or None
    config = Path(env["UV_CONFIG_FILE"]) if env.get("UV_CONFIG_FILE") else None
    candidates = [config] if config else [_config_home(env, home) / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    for path in candidates:
        if not path.is_file():
            continue
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise BadInput("not valid TOML", where=str(path), cure="correct uv's configuration") from None
        for index in data.get("index", []):
            if index.get("default"):
                default = default or index["url"]
            else:
                extra.append(index["url"])
        default = default or data.get("index-url") or data.get("pip", {}).get("index-url")
        extra += data.get("extra-index-url", [])
    return default, extra


def _from_pip(env: Mapping[str, str], home: Path) -> tuple[str | None, list[str]]:
    default, extra = env.get("PIP_INDEX_URL"), env.get("PIP_EXTRA_INDEX_URL", "").split()
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return default, extra
    files = [
        Path(env["PIP_CONFIG_FILE"]) if env.get("PIP_CONFIG_FILE") else None,
        _config_home(env, home) / "pip" / "pip.conf",
        home / ".pip" / "pip.conf",
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
    ]
    for path in files:
        if path is None or not path.is_file():
            continue
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, ValueError):
            raise BadInput("not a valid configuration", where=str(path), cure="correct pip's configuration") from None
        for section in ("install", "global"):
            default = default or parser.get(section, "index-url", fallback=None)
            extra += parser.get(section, "extra-index-url", fallback="").split()
    return default, extra


def _config_home(env: Mapping[str, str], home: Path) -> Path:
    return Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config"


def _unnamed(entry: str) -> str:
    """uv's variables may name an index: `mine=https://...`."""
    return re.sub(r"^[A-Za-z0-9_.-]+=(?=[A-Za-z][A-Za-z0-9+.-]*://)", "", entry)


def _unique(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(url.rstrip("/") for url in urls))
