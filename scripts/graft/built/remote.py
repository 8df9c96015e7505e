"""Built components in a registry: an OCI artifact for each, under the tag `<component>-<arch>-<key>`.

Its blobs are component.json and the wheels. The first one under a key stays: nobody replaces what others have used.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from graft.built.store import MAX_RECORD, RECORD, BuiltStore, Entry, File, Record, Wanted, check_key, parse_record
from graft.errors import RegistryFailed
from graft.registry.blobs import BytesBlob, FileBlob, put_blob
from graft.registry.client import Registry
from graft.registry.manifest import EMPTY_BYTES, Descriptor, artifact

ARTIFACT = "application/vnd.graft.component.v1+json"
WHEEL = "application/vnd.graft.wheel.v1+zip"
TITLE = "org.opencontainers.image.title"
#: Bytes of a wheel that are asked for at once.
PIECE = 16_000_000


def tag_of(component: str, arch: str, key: str) -> str:
    return f"{component}-{arch}-{key}"


def push(registry: Registry, entry: Entry) -> bool:
    """Have the entry in the registry; False when one of its key is there. Raises RegistryFailed."""
    record = entry.record
    tag = tag_of(record.component, record.arch, record.key)
    if registry.manifest(tag) is not None:
        return False
    put_blob(registry, BytesBlob(EMPTY_BYTES))
    told = BytesBlob(record.text().encode())
    put_blob(registry, told)
    blobs = [Descriptor(ARTIFACT, told.digest, told.size, {TITLE: RECORD})]
    for path, file in entry.wheels().items():
        blob = FileBlob(path, f"sha256:{file.sha256}", file.size)
        put_blob(registry, blob)
        blobs.append(Descriptor(WHEEL, blob.digest, blob.size, {TITLE: file.name}))
    registry.put_manifest(artifact(ARTIFACT, blobs), tag)
    return True


def pull(registry: Registry, store: BuiltStore, wanted: Wanted, work: Path) -> Entry | None:
    """Take a component over into the store; None when the registry does not have it.

    work: a folder of our own, removed at the end. Raises RegistryFailed when what is there is damaged, and FetchFailed
    for wheels with another key inside.
    """
    tag = tag_of(wanted.component, wanted.arch, wanted.key)
    found = registry.manifest(tag)
    if found is None:
        return None
    where = registry.name(tag)
    blobs = {blob.annotations.get(TITLE, ""): blob for blob in found.layers(where)}
    record = _record(registry, blobs.get(RECORD), where)
    if (record.component, record.arch, record.key) != (wanted.component, wanted.arch, wanted.key):
        raise RegistryFailed(f"it is {record.component} {record.arch} {record.key[:12]}", where=where)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        for file in record.files:
            _fetch(registry, file, work / file.name)
            check_key(work / file.name, wanted, f"{file.name} of {where}")
        return store.add(wanted, [work / file.name for file in record.files])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _record(registry: Registry, blob: Descriptor | None, where: str) -> Record:
    if blob is None or blob.size > MAX_RECORD:
        raise RegistryFailed(f"the artifact holds no {RECORD}", where=where)
    record = parse_record(registry.blob(blob.digest, blob.size, RECORD))
    if record is None:
        raise RegistryFailed(f"its {RECORD} is none", where=where)
    return record


def _fetch(registry: Registry, file: File, target: Path) -> None:
    """A wheel, piece by piece, held to its size and sha256. Raises RegistryFailed."""
    where = f"{file.name} in {registry.repository}"
    digest = hashlib.sha256()
    with target.open("wb") as sink:
        while (start := sink.tell()) < file.size:
            end = min(start + PIECE, file.size) - 1
            headers = {"Range": f"bytes={start}-{end}"} if (start, end) != (0, file.size - 1) else {}
            reply = registry.call("GET", f"blobs/sha256:{file.sha256}", what=where, headers=headers, final=(404, 416))
            # Without ranges the whole comes with the first answer.
            whole = reply.status == 200 and start == 0 and len(reply.body) == file.size
            part = reply.status == 206 and len(reply.body) == end - start + 1
            if not whole and not part:
                raise RegistryFailed(f"the registry lacks it, or a part of it (HTTP {reply.status})", where=where)
            sink.write(reply.body)
            digest.update(reply.body)
    if digest.hexdigest() != file.sha256:
        raise RegistryFailed("its bytes are not those of its digest: damaged or tampered with", where=where)
