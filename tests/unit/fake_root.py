"""A small Debian root file system with a venv, as dpkg, an installer and Graft leave it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fake_site import Site

VENV = "opt/venv"
SITE = f"{VENV}/lib/python3.11/site-packages"
PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
OURS = PEM.format("ZGViaWFu")


class Root(Site):
    """A root file system: Debian packages by dpkg's database, a venv, and what Graft says of the image."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, SITE)
        self.info = root / "var/lib/dpkg/info"
        self.info.mkdir(parents=True)
        self.status: list[str] = []
        (root / "usr/bin").mkdir(parents=True)
        (root / "bin").symlink_to("usr/bin")
        self.put(
            "etc/dpkg/dpkg.cfg.d/graft", "path-exclude=/usr/share/doc/*\npath-include=/usr/share/doc/*/copyright\n"
        )

    def put(self, path: str, text: str = "", mode: int = 0o644) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        return place

    def deb(
        self, name: str, version: str, contents: dict[str, str], configuration: dict[str, str] | None = None
    ) -> None:
        """Install a Debian package; the paths of `contents` as the package spells them."""
        both = {**contents, **(configuration or {})}
        for path, text in both.items():
            self.put(path.lstrip("/"), text)
        folders = {str(parent) for path in both for parent in Path(path).parents}
        (self.info / f"{name}.list").write_text("\n".join(["/.", *sorted(folders - {"/"}), *both]) + "\n")
        sums = [f"{md5(text)}  {path.lstrip('/')}" for path, text in contents.items()]
        (self.info / f"{name}.md5sums").write_text("\n".join(sums) + "\n")
        conffiles = "".join(f" {path} {md5(text)}\n" for path, text in (configuration or {}).items())
        self.status.append(
            f"Package: {name}\nStatus: install ok installed\nVersion: {version}\nDescription: one\n two\n"
            + (f"Conffiles:\n{conffiles}" if conffiles else "")
        )
        self.debs[name] = version
        (self.root / "var/lib/dpkg/status").write_text("\n".join(self.status))

    def describe(self, name: str, text: str) -> None:
        """A file of /usr/share/graft."""
        self.put(f"usr/share/graft/{name}", text)
        self.metadata[name] = hashlib.sha256(text.encode()).hexdigest()


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def small_root(folder: Path) -> Root:
    """An image in which nothing is wrong."""
    made = Root(folder)
    made.deb("util-linux", "2.38-1", {"/bin/su": "su", "/usr/share/doc/util-linux/copyright": "free"})
    (made.root / "usr/bin/su").chmod(0o4755)
    made.deb("python3.11", "3.11.2", {"/usr/lib/python3.11/os.py": "name = 'posix'\n"}, {"/etc/python3.11/site": "x\n"})
    made.deb("ca-certificates", "2023", {"/usr/share/ca-certificates/mozilla/A.crt": OURS})
    made.put("etc/ssl/certs/ca-certificates.crt", OURS)
    (made.root / "etc/ssl/certs/A.pem").symlink_to("/usr/share/ca-certificates/mozilla/A.crt")
    made.put("etc/passwd", "root:x:0:0\n")
    made.put(f"{VENV}/pyvenv.cfg", "home = /usr/bin\n")
    made.put(f"{VENV}/bin/activate", "")
    (made.root / VENV / "lib64").symlink_to("lib")
    made.install("one", "1.0", {"one.py": "ONE = 1\n", "../../../bin/one": "#!python\n"})
    made.describe("lock.yaml", "digest: x\n")
    return made
