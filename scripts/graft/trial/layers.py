"""Two images compared to the last member of their layers, read as streams from an engine."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graft import bundle
from graft.errors import EngineMissing
from graft.trial.saved import image_tar

if TYPE_CHECKING:
    from docker import DockerClient

#: What of an image's configuration reaches whoever runs it.
CONFIG = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "Labels", "ExposedPorts", "Volumes", "StopSignal")
#: A file whose lines say what a wheel installed is small enough to be kept, in bytes.
MAX_RECORD = 20_000_000


@dataclass(frozen=True)
class Entry:
    """One member of a layer. lines: of a wheel's RECORD, by the file that each is about."""

    facts: Mapping[str, str]
    lines: Mapping[str, str] | None = None


@dataclass(frozen=True)
class FileDifference:
    """One file that differs. layer: counted from the lowest, from 1; what: what of it, as `mtime 1 -> 2`."""

    layer: int
    file: str
    what: str


def configs_differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What of two images' configurations is not the same."""
    pairs = [(name, one["Config"].get(name) or None, other["Config"].get(name) or None) for name in CONFIG]
    pairs += [(name, one.get(name), other.get(name)) for name in ("Architecture", "Os", "Created")]
    return [f"{name}: {_short(a)} -> {_short(b)}" for name, a, b in pairs if a != b]


def history_differs(client: DockerClient, one: str, other: str) -> list[str]:
    """Texts of two histories that are not the same, lowest layer first; no text is part of a layer."""
    texts = [
        [str(step["CreatedBy"]) for step in reversed(client.images.get(image).history())] for image in (one, other)
    ]
    return [
        f"step {number} {_short(a)} -> {_short(b)}"
        for number, (a, b) in enumerate(itertools.zip_longest(*texts), 1)
        if a != b
    ]


def layers_differ(client: DockerClient, one: str, other: str) -> list[FileDifference]:
    """Every member in which the layers of two images differ, layer by layer; both are on the engine."""
    ids = [client.images.get(image).attrs["RootFS"]["Layers"] for image in (one, other)]
    numbers = [n for n in range(max(map(len, ids))) if _at(ids[0], n) != _at(ids[1], n)]
    sides = [_entries(client, image, made, numbers) for image, made in zip((one, other), ids, strict=True)]
    found: list[FileDifference] = []
    for number in numbers:
        found += _compare(number + 1, sides[0].get(number, {}), sides[1].get(number, {}))
    return found


def _entries(
    client: DockerClient, image: str, layers: Sequence[str], numbers: Sequence[int]
) -> dict[int, dict[str, Entry]]:
    """The members of the layers with these numbers, those that the image has: number -> name -> facts, in order."""
    wanted = {number: layers[number] for number in numbers if number < len(layers)}
    found: dict[str, dict[str, Entry]] = {}
    names: Sequence[str] = ()
    with image_tar(client, image) as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is not None and member.name == "manifest.json":
                names = json.loads(stream.read())[0]["Layers"]
            elif stream is not None and _is_wanted(member, wanted):
                found[member.name] = _members(stream)
    by_id = dict(zip(layers, names, strict=True))
    absent = [digest for digest in wanted.values() if by_id.get(digest) not in found]
    if absent:
        raise EngineMissing(
            f"the engine does not give layer {absent[0][:19]} by its uncompressed bytes: its files cannot be compared",
            cure="use an engine with the classic image store, as ENGINE=embedded does",
        )
    return {number: found[by_id[digest]] for number, digest in wanted.items()}


def _is_wanted(member: tarfile.TarInfo, wanted: Mapping[int, str]) -> bool:
    """Whether a blob is a wanted layer: the classic store names them so, other stores by their compressed bytes."""
    kind, _, name = member.name.rpartition("/")
    return kind == "blobs/sha256" and f"sha256:{name}" in wanted.values()


def _members(stream: Any) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    with tarfile.open(fileobj=stream, mode="r|*") as tar:
        for place, member in enumerate(tar):
            facts = {
                "kind": member.type.decode("ascii"),
                "mode": oct(member.mode),
                "owner": f"{member.uid}:{member.gid}",
                "mtime": str(member.mtime),
                "size": str(member.size),
                "link": member.linkname,
                "attributes": json.dumps({k: v for k, v in member.pax_headers.items() if k.startswith("SCHILY")}),
                "place": str(place),
            }
            lines = None
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                keep = member.name.endswith(".dist-info/RECORD") and member.size < MAX_RECORD
                digest, kept = hashlib.sha256(), b""
                while chunk := content.read(bundle.CHUNK):
                    digest.update(chunk)
                    kept += chunk if keep else b""
                facts["sha256"] = digest.hexdigest()
                lines = _lines(kept) if keep else None
            found[member.name] = Entry(facts, lines)
    return found


def _lines(record: bytes) -> dict[str, str]:
    rows = csv.reader(record.decode("utf-8", "replace").splitlines())
    return {row[0]: ",".join(row[1:]) for row in rows if row}


def _compare(layer: int, one: Mapping[str, Entry], other: Mapping[str, Entry]) -> list[FileDifference]:
    found: list[FileDifference] = []
    for name in dict.fromkeys([*one, *other]):
        if name not in other or name not in one:
            found.append(FileDifference(layer, name, "only in the image" if name in one else "only in the new build"))
            continue
        a, b = one[name], other[name]
        # A place alone is said once, below: one file more moves all that follow.
        changed = [k for k in dict.fromkeys([*a.facts, *b.facts]) if a.facts.get(k) != b.facts.get(k) and k != "place"]
        said = [f"{k} {_short(a.facts.get(k))} -> {_short(b.facts.get(k))}" for k in changed]
        if a.lines is not None and b.lines is not None and a.lines != b.lines:
            lines = [n for n in dict.fromkeys([*a.lines, *b.lines]) if a.lines.get(n) != b.lines.get(n)]
            more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
            said.append(f"its lines for {', '.join(lines[:5])}{more}")
        if said:
            found.append(FileDifference(layer, name, "; ".join(said)))
    if not found and list(one) != list(other):
        first = next(a for a, b in zip(one, other, strict=True) if a != b)
        found.append(FileDifference(layer, first, "stands at another place of the layer"))
    return found


def _at(layers: Sequence[str], number: int) -> str | None:
    return layers[number] if number < len(layers) else None


def _short(value: object) -> str:
    text = "nothing" if value in (None, "") else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
