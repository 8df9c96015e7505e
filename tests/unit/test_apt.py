"""The host's apt sources, the private apt configuration, and pins. No network: a local archive stands for Debian's."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.apt import Archive, DebPin, Mirrors, host_mirrors, pockets_of
from graft.apt.archive import _printed, _records
from graft.apt.sources import parse_deb822, parse_one_line
from graft.errors import BadInput, FetchFailed
from graft.paths import Paths

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="this host has no apt")


def etc(tmp_path: Path, **files: str) -> Path:
    """An /etc/apt with these files; `__` in a name stands for a dot."""
    (tmp_path / "sources.list.d").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = tmp_path if name == "sources__list" else tmp_path / "sources.list.d"
        (place / name.replace("__", ".")).write_text(text)
    return tmp_path


DEB822 = """\
# a mirror
Types: deb deb-src
URIs: http://a.example/debian http://b.example/debian/
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://a.example/debian-security
Suites: bookworm-security
Components: main
"""


def test_deb822_lists_every_address(tmp_path: Path) -> None:
    found = host_mirrors(etc(tmp_path, debian__sources=DEB822))
    assert found.main == ("http://a.example/debian", "http://b.example/debian")
    assert found.security == ("http://a.example/debian-security",)


def test_one_line_form_with_options_and_comments(tmp_path: Path) -> None:
    text = (
        "# deb http://no.example/debian bookworm main\n"
        "deb-src http://no.example/debian bookworm main\n"
        '  deb [ arch=amd64,arm64 signed-by="/usr/share/keyrings/debian-archive-keyring.gpg" ]'
        " http://a.example/debian/ bookworm main contrib # the mirror\n"
        "deb [arch=arm64] http://arm.example/debian bookworm main\n"
        "deb http://a.example/debian-security bookworm-security main\n"
        "deb\n"
        "deb http://short.example/debian\n"
        "nonsense [ deb\n"
    )
    found = host_mirrors(etc(tmp_path, sources__list=text))
    assert found == Mirrors(("http://a.example/debian",), ("http://a.example/debian-security",), found.keyring)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"debian__sources__disabled": DEB822},
        {"debian__list__save": "deb http://a.example/debian bookworm main\n"},
        {"debian__sources": DEB822.replace("Types:", "Enabled: no\nTypes:")},
        {"debian__sources": "Types: deb-src\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n"},
        {"other__list": "deb [signed-by=/k/vendor.gpg] http://apt.vendor.example bookworm main\n"},
        {"other__list": "deb http://archive.example/ubuntu noble main\n"},
        {"other__list": "deb http://a.example/debian bookworm contrib\n"},
        {"other__list": "deb cdrom:[Debian 12]/ bookworm main\n"},
        {"flat__list": "deb http://flat.example/debian ./\n"},
        {"broken__sources": "\x00\x01 : :\n\n:::\n continuation first\n"},
    ],
    ids=lambda files: " ".join(files) or "nothing",
)
def test_what_is_no_debian_archive_is_not_taken_for_one(tmp_path: Path, files: dict[str, str]) -> None:
    found = host_mirrors(etc(tmp_path, **files))
    assert (found.main, found.security) == ((), ())


@pytest.mark.parametrize(
    ("mirrors", "said"),
    [
        (Mirrors(), "no Debian archive, and bookworm is needed"),
        (Mirrors(("http://m.example/debian",)), "no Debian security archive, and bookworm-security is needed"),
    ],
)
def test_without_an_archive_it_says_which_and_invents_none(tmp_path: Path, mirrors: Mirrors, said: str) -> None:
    with pytest.raises(FetchFailed, match=said) as problem:
        Archive(Paths(tmp_path), ["bookworm", "bookworm-security"], mirrors=mirrors)
    assert "sources" in (problem.value.cure or "")


def test_debians_own_archive_comes_before_vendors(tmp_path: Path) -> None:
    found = host_mirrors(
        etc(
            tmp_path,
            aaa__list="deb http://unsigned.example/pool bookworm main\n"
            "deb [signed-by=/k/private.gpg] http://private.example/debian bookworm main\n",
            debian__sources=DEB822,
        )
    )
    assert found.main == (
        "http://a.example/debian",
        "http://b.example/debian",
        "http://private.example/debian",
        "http://unsigned.example/pool",
    )


def test_mirror_list_of_cloud_images(tmp_path: Path) -> None:
    listing = tmp_path / "mirrors.txt"
    listing.write_text("# best first\nhttps://one.example/debian\tpriority:1\n\nhttps://two.example/debian\n")
    text = f"Types: deb\nURIs: mirror+file://{listing}\nSuites: trixie trixie-updates\nComponents: main\n"
    found = host_mirrors(etc(tmp_path, debian__sources=text))
    assert found.main == ("https://one.example/debian", "https://two.example/debian")


def test_embedded_key_and_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeff" + DEB822.replace(
        "/usr/share/keyrings/debian-archive-keyring.gpg",
        "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBGO\n -----END PGP PUBLIC KEY BLOCK-----",
    )
    found = host_mirrors(etc(tmp_path, debian__sources=text))
    assert found.main == ("http://a.example/debian", "http://b.example/debian")


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for source in (*parse_one_line(text), *parse_deb822(text)):
        assert source.uri
        assert not source.uri.isspace()


WORD = st.text("abcxyz0123456789-._~", min_size=1, max_size=12).filter(lambda w: not w.startswith("#"))


@given(
    uris=st.lists(WORD, min_size=1), suites=st.lists(WORD, min_size=1), components=st.lists(WORD), fold=st.booleans()
)
def test_both_forms_say_the_same(uris: list[str], suites: list[str], components: list[str], fold: bool) -> None:
    space = "\n  " if fold else " "
    stanza = (
        f"Types: deb\nURIs: {space.join(uris)}\nSuites: {space.join(suites)}\nComponents: {space.join(components)}\n"
    )
    lines = "".join(f"deb {u} {s} {' '.join(components)}\n" for u in uris for s in suites)
    as_lines = [(s.uri, s.suites[0], s.components) for s in parse_one_line(lines)]
    as_stanzas = [(s.uri, suite, s.components) for s in parse_deb822(stanza) for suite in s.suites]
    assert as_lines == as_stanzas


def test_pockets_of_a_release() -> None:
    assert pockets_of("bookworm") == ("bookworm", "bookworm-updates", "bookworm-security")
    assert pockets_of("sid") == ("sid",)


def pin(**changes: object) -> DebPin:
    fields: dict[str, object] = {
        "name": "libacl1",
        "version": "1:2.3.1-3+b1",
        "architecture": "amd64",
        "file": "pool/main/a/acl/libacl1_2.3.1-3+b1_amd64.deb",
        "size": 1,
        "sha256": "0" * 64,
    }
    return DebPin.model_validate({**fields, **changes})


def test_a_file_name_holds_the_epoch() -> None:
    assert pin().basename == "libacl1_1%3a2.3.1-3+b1_amd64.deb"


def test_addresses_in_order(tmp_path: Path) -> None:
    mirrors = Mirrors(("http://m.example/debian",), ("http://s.example/debian-security/",))
    archive = Archive(
        Paths(tmp_path),
        ["bookworm"],
        mirrors=mirrors,
        snapshot="https://snap.example/archive/{archive}/20261130T000000Z",
    )
    path = "pool/main/a/acl/libacl1_2.3.1-3+b1_amd64.deb"
    assert archive.urls(pin()) == [
        f"http://m.example/debian/{path}",
        f"http://s.example/debian-security/{path}",
        f"https://snap.example/archive/debian/20261130T000000Z/{path}",
        f"https://snap.example/archive/debian-security/20261130T000000Z/{path}",
    ]
    security = archive.urls(pin(file="pool/updates/main/a/x.deb"))
    assert security[0] == "http://s.example/debian-security/pool/updates/main/a/x.deb"


@pytest.mark.parametrize("suite", ["", "../x", "bookworm main\ndeb http://x", "Bookworm;", "-o"])
def test_a_suite_is_a_word(tmp_path: Path, suite: str) -> None:
    with pytest.raises(BadInput, match="suite"):
        Archive(Paths(tmp_path), [suite], mirrors=Mirrors())


def test_print_uris_and_records() -> None:
    text = "'http://x/libacl1_2.3_amd64.deb' libacl1_1%3a2.3_amd64.deb 12 SHA256:ab\nNOTE: x\n"
    assert list(_printed(text)) == [("libacl1", "1:2.3", "amd64")]
    assert list(_records("Package: a\nVersion: 1\nDescription: x\n more: y\n\nN: note\n")) == [
        {"Package": "a", "Version": "1", "Description": "x"}
    ]


# A real archive on disk, read by the real apt.


def make_deb(folder: Path, name: str, version: str, fields: str = "") -> Path:
    tree = folder / f"tree-{name}-{version.replace(':', '_')}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x <x@example.org>\n{fields}"
        "Description: test\n"
    )
    deb = folder / "pool" / f"{name}_{version.split(':')[-1]}_amd64.deb"
    deb.parent.mkdir(exist_ok=True)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, deb], check=True, capture_output=True)
    shutil.rmtree(tree)
    return deb


def make_archive(root: Path, suite: str, debs: list[Path]) -> None:
    """dists/<suite> with Packages and an unsigned Release."""
    stanzas = []
    for deb in debs:
        control = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True).stdout
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        stanzas.append(f"{control}Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
    index = root / "dists" / suite / "main" / "binary-amd64"
    index.mkdir(parents=True, exist_ok=True)
    packages = "\n".join(stanzas).encode()
    (index / "Packages").write_bytes(packages)
    (index / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
    sums = "".join(
        f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} main/binary-amd64/{path.name}\n"
        for path in sorted(index.iterdir())
    )
    (root / "dists" / suite / "Release").write_text(
        f"Origin: test\nSuite: {suite}\nCodename: {suite}\nDate: Mon, 30 Nov 2026 00:00:00 UTC\n"
        f"Architectures: amd64\nComponents: main\nSHA256:\n{sums}"
    )


class Trusting(Archive):
    """An archive without signatures, which only a test may have."""

    def _write_configuration(self, main: str) -> None:
        super()._write_configuration(main)
        listing = self.folder / "etc" / "sources.list"
        listing.write_text(listing.read_text().replace("[", "[trusted=yes "))


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    root = tmp_path / "mirror"
    root.mkdir()
    debs = [
        make_deb(root, "base", "1.0", "Essential: yes\n"),
        make_deb(root, "tool", "1:2.0-1", "Depends: liba (>= 1), either | other\nRecommends: extra\n"),
        make_deb(root, "liba", "1.5"),
        make_deb(root, "liba", "1.6"),
        make_deb(root, "either", "1"),
        make_deb(root, "other", "1"),
        make_deb(root, "extra", "1"),
        make_deb(root, "needs-old", "1", "Depends: liba (<< 1.6)\n"),
        make_deb(root, "broken", "1", "Depends: nowhere\n"),
    ]
    make_archive(root, "bookworm", debs)
    return root


def trusting(tmp_path: Path, mirror: Path, **more: str) -> Trusting:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    mirrors = Mirrors((f"file:{mirror}",), (f"file:{mirror}",), keyring)
    return Trusting(Paths(tmp_path / "project"), ["bookworm"], mirrors=mirrors, **more)


@needs_apt
def test_closure_from_an_empty_status(tmp_path: Path, mirror: Path) -> None:
    archive = trusting(tmp_path, mirror)
    pins = archive.resolve(["tool"], essential=True)
    assert [(p.name, p.version) for p in pins] == [
        ("base", "1.0"),
        ("either", "1"),
        ("liba", "1.6"),
        ("tool", "1:2.0-1"),
    ]
    deb = mirror / pins[3].file
    assert (pins[3].size, pins[3].sha256) == (deb.stat().st_size, hashlib.sha256(deb.read_bytes()).hexdigest())
    assert archive.resolve(["tool"], essential=True) == pins


@needs_apt
def test_what_comes_on_top(tmp_path: Path, mirror: Path) -> None:
    archive = trusting(tmp_path, mirror)
    runtime = archive.resolve(["liba"], essential=True)
    builder = archive.resolve(["tool", "other"], beyond=runtime, set="builder")
    assert [(p.name, p.set) for p in builder] == [("other", "builder"), ("tool", "builder")]
    with pytest.raises(BadInput):
        archive.resolve(["needs-old"], beyond=runtime)


@needs_apt
@pytest.mark.parametrize("name", ["absent", "broken", "tool=9", "liba=1.7"])
def test_what_cannot_be_had(tmp_path: Path, mirror: Path, name: str) -> None:
    with pytest.raises(BadInput, match=name) as caught:
        trusting(tmp_path, mirror).resolve([name])
    assert caught.value.tail
    assert str(mirror) not in caught.value.tail


@needs_apt
def test_the_newest_of_each_without_what_it_needs(tmp_path: Path, mirror: Path) -> None:
    found = trusting(tmp_path, mirror).newest(["tool", "liba"])
    assert [(pin.name, pin.version, pin.basename) for pin in found] == [
        ("liba", "1.6", "liba_1.6_amd64.deb"),
        ("tool", "1:2.0-1", "tool_1%3a2.0-1_amd64.deb"),
    ]
    with pytest.raises(BadInput, match="absent"):
        trusting(tmp_path, mirror).newest(["absent"])


@needs_apt
def test_a_locked_package_that_is_gone(tmp_path: Path, mirror: Path) -> None:
    archive = trusting(tmp_path, mirror)
    gone = pin(name="liba", version="1.4")
    said = archive.explain_missing(gone)
    assert isinstance(said, FetchFailed)
    assert "liba 1.4" in said.what
    assert "1.6, 1.5" in said.what
    assert "make lock NEW_BASE=1" in (said.cure or "")
    assert "NEW_TOOLS" in (archive.explain_missing(gone, "make lock NEW_TOOLS=1").cure or "")
    assert "snapshot" in (said.cure or "")
    shutil.rmtree(mirror)
    old = archive._stamp.stat().st_mtime - 3600
    os.utime(archive._stamp, (old, old))
    assert "could not be asked" in archive.explain_missing(gone).what


@needs_apt
def test_what_the_archive_has_now_is_asked_anew(tmp_path: Path, mirror: Path) -> None:
    archive = trusting(tmp_path, mirror)
    assert archive.available_versions("liba") == ["1.6", "1.5"]
    make_archive(mirror, "bookworm", [make_deb(mirror, "liba", "1.7")])
    old = archive._stamp.stat().st_mtime - 3600
    os.utime(archive._stamp, (old, old))
    assert archive.explain_missing(pin(name="liba", version="1.6")).what.endswith("; it has 1.7")
    assert "no version of it" in archive.explain_missing(pin(name="absent")).what


@needs_apt
def test_lists_are_read_again_only_when_old_or_other(tmp_path: Path, mirror: Path) -> None:
    archive = trusting(tmp_path, mirror)
    assert archive.update()
    assert not archive.update()
    old = archive._stamp.stat().st_mtime - 7 * 3600
    os.utime(archive._stamp, (old, old))
    assert archive.update()
    future = archive._stamp.stat().st_mtime + 1e6
    os.utime(archive._stamp, (future, future))
    assert archive.update(), "a clock that went back must not keep old lists for ever"
    moved = mirror.rename(mirror.with_name("moved"))
    assert trusting(tmp_path, moved).update()


@needs_apt
def test_an_unsigned_archive_is_refused(tmp_path: Path, mirror: Path) -> None:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    archive = Archive(Paths(tmp_path / "project"), ["bookworm"], mirrors=Mirrors((f"file:{mirror}",), (), keyring))
    with pytest.raises(FetchFailed) as caught:
        archive.update()
    assert str(mirror) not in str(caught.value.as_dict())


@needs_apt
def test_an_address_never_reaches_a_message(tmp_path: Path) -> None:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    mirrors = Mirrors(("http://user:secret@mirror.invalid/debian",), (), keyring)
    with pytest.raises(FetchFailed) as caught:
        Archive(Paths(tmp_path), ["bookworm"], mirrors=mirrors).update()
    said = str(caught.value.as_dict())
    assert "secret" not in said
    assert "mirror.invalid" not in said
    for path in (tmp_path / ".graft").rglob("*"):
        if path.is_file() and "secret" in path.read_text(errors="replace"):
            assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"


@needs_apt
def test_the_second_mirror_is_asked_when_the_first_fails(tmp_path: Path, mirror: Path) -> None:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    mirrors = Mirrors((f"file:{tmp_path}/nowhere", f"file:{mirror}"), (), keyring)
    archive = Trusting(Paths(tmp_path / "project"), ["bookworm"], mirrors=mirrors)
    assert archive.update()
    assert archive.available_versions("liba") == ["1.6", "1.5"]


@needs_apt
def test_the_hosts_hooks_do_not_run(tmp_path: Path, mirror: Path) -> None:
    archive = trusting(tmp_path, mirror)
    archive.update()
    env = {**os.environ, "APT_CONFIG": str(archive.folder / "etc" / "first.conf")}
    dump = subprocess.run(["apt-config", "dump"], env=env, capture_output=True, text=True, check=True).stdout
    assert "Post-Invoke" not in dump
    assert "Pre-Install" not in dump
    states = [line for line in dump.splitlines() if line.startswith(("Dir::State", "Dir::Cache"))]
    assert not any('"/var' in line for line in states), states
