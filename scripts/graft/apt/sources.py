"""Where this host finds Debian's archives, read from its apt sources.

Both forms of sources.list(5) are understood: one line per source (`*.list`) and deb822
stanzas (`*.sources`). Only files that apt itself would read count, so `*.disabled` or
`*.list.save` are left alone. An address read here lives in memory and in the private apt
configuration under `.graft`; it never reaches a lock, a log or a message.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

HOST_ETC = Path("/etc/apt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHITECTURE = "amd64"

#: Debian's own front door, for a host whose apt names no Debian archive.

#: Suites and codenames of Debian's archive, without their pockets.
SUITES = frozenset(
    {"oldoldstable", "oldstable", "stable", "testing", "unstable", "experimental", "rc-buggy", "sid"}
    | {"buster", "bullseye", "bookworm", "trixie", "forky", "duke"}
)
POCKETS = ("-security", "-updates", "-proposed-updates", "-backports-sloppy", "-backports", "/updates")

#: A file name that apt reads; apt ignores every other (apt.conf(5), "the files in Dir::Etc::Parts").
_READ_BY_APT = re.compile(r"[A-Za-z0-9_.-]+\.(list|sources)")


@dataclass(frozen=True)
class Source:
    """One archive address with its suites, as written; several addresses become several sources."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def signed_by(self) -> str:
        return self.options.get("signed-by", "")


@dataclass(frozen=True)
class Mirrors:
    """Addresses of Debian's archives, best first, without a trailing slash; `keyring` verifies both."""

    main: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    keyring: Path = KEYRING


def is_security(suite: str) -> bool:
    """Is this suite served by the security archive? (`bullseye/updates` was the name before 2021.)"""
    return suite.endswith(("-security", "/updates"))


def pockets_of(suite: str) -> tuple[str, ...]:
    """A suite with its stable updates and security fixes; unstable has neither."""
    if suite in ("sid", "unstable", "experimental", "rc-buggy"):
        return (suite,)
    return (suite, f"{suite}-updates", f"{suite}-security")


def host_mirrors(etc: Path = HOST_ETC) -> Mirrors:
    """Debian's archives as this host's apt knows them; empty where it names none: Graft knows no address itself."""
    known = host_sources(etc)
    main = _ranked(known, security=False)
    security = _ranked(known, security=True)
    keyrings = [Path(s.signed_by) for s in (*main, *security) if s.signed_by.startswith("/")]
    return Mirrors(
        main=_addresses(main),
        security=_addresses(security),
        keyring=next((k for k in keyrings if k.is_file()), KEYRING),
    )


def host_sources(etc: Path = HOST_ETC) -> list[Source]:
    """Every enabled binary source for amd64, in the order in which apt reads the files."""
    found: list[Source] = []
    for path in _source_files(etc):
        text = path.read_text(encoding="utf-8", errors="replace").removeprefix("\ufeff")
        found.extend(parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text))
    return [expanded for source in found for expanded in _mirror_lists(source) if _for_us(expanded)]


def parse_one_line(text: str) -> list[Source]:
    """The `deb [options] uri suite component...` lines of a *.list file; malformed lines are passed over."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<rest>\S.*)$", line.split("#", 1)[0])
        if match is None:
            continue
        words = match["rest"].split()
        if len(words) >= 2:
            options = _options(match["options"] or "")
            found.append(Source(words[0], (words[1],), tuple(words[2:]), options))
    return found


def parse_deb822(text: str) -> list[Source]:
    """The enabled `deb` stanzas of a *.sources file, one source for each address."""
    found = []
    for stanza in _stanzas(text):
        if "deb" not in stanza.get("types", "").split():
            continue
        if stanza.get("enabled", "yes").strip().lower() in ("no", "false", "0", "off", "without", "disable"):
            continue
        suites, components = tuple(stanza.get("suites", "").split()), tuple(stanza.get("components", "").split())
        options = {"arch": stanza.get("architectures", ""), "signed-by": stanza.get("signed-by", "").strip()}
        for uri in stanza.get("uris", "").split():
            found.append(Source(uri, suites, components, {k: v for k, v in options.items() if v}))
    return found


def _source_files(etc: Path) -> Iterator[Path]:
    main, parts = etc / "sources.list", etc / "sources.list.d"
    if main.is_file():
        yield main
    if parts.is_dir():
        yield from sorted(p for p in parts.iterdir() if _READ_BY_APT.fullmatch(p.name) and p.is_file())


def _options(text: str) -> dict[str, str]:
    """`arch=amd64 signed-by="/a b.gpg"` as a dict with lower-case keys."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    pairs = (word.partition("=") for word in words)
    return {key.rstrip("+-").lower(): value for key, _, value in pairs if value}


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """Paragraphs of `Field: value` with lower-case names; continuation lines joined, comments dropped."""
    current: dict[str, str] = {}
    name = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if current:
                yield current
            current, name = {}, ""
        elif line[0] in " \t" and name:
            current[name] += "\n" + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            current[name] = value.strip()


def _mirror_lists(source: Source) -> Iterator[Source]:
    """`mirror+file:` names a list of addresses (apt-transport-mirror(1)); cloud images ship one."""
    scheme, _, rest = source.uri.partition(":")
    if scheme not in ("mirror+file", "mirror+copy"):
        yield source
        return
    path = Path(re.sub("^/+", "/", rest))
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split("#", 1)[0].split()
            if words:
                yield Source(words[0], source.suites, source.components, source.options)


def _for_us(source: Source) -> bool:
    arches = re.split(r"[,\s]+", source.options.get("arch", "").strip())
    return urlsplit(source.uri).scheme in ("http", "https", "file") and (arches == [""] or ARCHITECTURE in arches)


def _ranked(known: Iterable[Source], *, security: bool) -> list[Source]:
    """Sources of Debian's archive, best first.

    Other vendors use Debian's suite names too, so one that is signed by a key of its own counts only
    when its address ends as Debian's do. apt then verifies the archive with the keyring either way.
    """

    def rank(source: Source) -> int | None:
        suites = [s for s in source.suites if is_security(s) == security and _base(s) in SUITES]
        if not suites or "main" not in source.components:
            return None
        if "debian-archive" in source.signed_by:
            return 0
        path = urlsplit(source.uri).path.rstrip("/")
        named = path.endswith(("/debian-security", "/security")) if security else path.endswith("/debian")
        if source.signed_by:
            return 2 if named else None
        return 1 if named else 3

    ranked = [(rank(source), source) for source in known]
    return [source for place, source in sorted(((p, s) for p, s in ranked if p is not None), key=lambda pair: pair[0])]


def _base(suite: str) -> str:
    for pocket in POCKETS:
        suite = suite.removesuffix(pocket)
    return suite


def _addresses(sources: Iterable[Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source.uri.rstrip("/") for source in sources))
