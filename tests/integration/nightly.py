"""An image as somebody else would have built it: six installed from a wheel, a user, an entrypoint, and no shell."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping

from docker import DockerClient
from tiny import Tiny

SITE = "/opt/venv/lib/python3.11/site-packages"
RECORD = f"{SITE}/six-1.17.0.dist-info/RECORD"
CACHED = "__pycache__/six.cpython-311.pyc"
USER, MODE = 1234, 0o640
CONFIG = {
    "User": f"{USER}:{USER}",
    "Entrypoint": ["python3", "-c", "import six; print(six.__version__)"],
    "Cmd": ["two words"],
    "Labels": {"mine": "a $b"},
    "Env": ["FOO=a b"],
    "ExposedPorts": {"8000/tcp": {}},
}
#: Takes the shells away, and gives the metadata of six the name of another version.
PREPARE = """
import pathlib, shutil, sys
for name in ("sh", "bash", "dash", "rbash"):
    pathlib.Path("/bin", name).unlink(missing_ok=True)
site, version = sys.argv[1:]
if version != "1.17.0":
    # Not renamed: a folder of a lower layer cannot be.
    shutil.copytree(f"{site}/six-1.17.0.dist-info", f"{site}/six-{version}.dist-info")
    shutil.rmtree(f"{site}/six-1.17.0.dist-info")
"""


def record_line(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


def make_nightly(tiny: Tiny, reference: str, name: str, six: bytes, version: str = "1.17.0") -> str:
    """The tiny image with the bytes of `six` as a wheel of `version`, and bytecode; returns its id."""
    record = tiny.read_in(reference, RECORD)[RECORD].decode()
    info = f"six-{version}.dist-info"
    lines = [line for line in record.splitlines() if not line.startswith(("six.py,", "__pycache__/"))]
    lines = [line.replace("six-1.17.0.dist-info", info) for line in lines]
    lines += [record_line("six.py", six), f"{CACHED},,"]
    prepare = ["python3", "-c", PREPARE, SITE, version]
    with tiny.client() as client:
        made = client.api.create_container(reference, entrypoint=prepare)["Id"]
        try:
            client.api.start(made)
            assert client.api.wait(made)["StatusCode"] == 0
            # Newer than its source, as an installer leaves it, and wrong: whoever reads it fails.
            files = {
                f"{SITE}/six.py": six,
                f"{SITE}/{CACHED}": b"not bytecode",
                f"{SITE}/{info}/RECORD": ("\n".join(lines) + "\n").encode(),
            }
            if version != "1.17.0":
                files[f"{SITE}/{info}/METADATA"] = f"Metadata-Version: 2.1\nName: six\nVersion: {version}\n".encode()
            client.api.put_archive(made, "/", tar_of(files))
            repository, _, tag = name.rpartition(":")
            return str(client.api.commit(made, repository=repository, tag=tag, conf=CONFIG)["Id"])
        finally:
            client.api.remove_container(made, force=True)


def with_file(client: DockerClient, image: str, name: str, files: Mapping[str, bytes]) -> str:
    """An image with files put over it."""
    made = client.api.create_container(image)["Id"]
    try:
        client.api.put_archive(made, "/", tar_of(files))
        repository, _, tag = name.rpartition(":")
        return str(client.api.commit(made, repository=repository or None, tag=tag or None)["Id"])
    finally:
        client.api.remove_container(made, force=True)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mtime = len(data), 1_700_000_000
            member.uid = member.gid = USER
            member.mode = MODE if path.endswith("six.py") else 0o644
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def layers_files(client: DockerClient, image: str) -> list[dict[str, tarfile.TarInfo]]:
    """What each layer of an image holds, lowest first."""
    saved = b"".join(client.images.get(image).save())
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        manifest = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
        found = []
        for layer in manifest[0]["Layers"]:
            data = tar.extractfile(layer)
            assert data is not None
            with tarfile.open(fileobj=io.BytesIO(data.read())) as inner:
                found.append({member.name: member for member in inner.getmembers()})
    return found
