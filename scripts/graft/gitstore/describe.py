"""The version of a commit from the tags before it: what `git describe` finds, in the form that setuptools_scm gives it.

Of history and tags alone: no work tree is looked at, so there is none that could be dirty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.version import InvalidVersion, Version

from graft.errors import BadInput
from graft.gitstore.mirror import SHORT, Mirrors
from graft.patching.repository import Repository
from graft.sources import GitSource

#: As setuptools_scm reads a tag: `v1.2.3`, `1.2.3`, `name-1.2.3`.
TAG = re.compile(r"(?:[\w-]+-)?[vV]?(\d[^+]*)(?:\+.*)?")
TAGS = "refs/tags/"
PEELED = "^{}"
#: Hex digits of a commit in a version.
DIGITS = 9


def describe(mirrors: Mirrors, scratch: Repository, name: str, source: GitSource, merged: str) -> str:
    """The version (PEP 440) of a git source whose history is in `scratch`; `merged` is the tree of commit and heads.

    On a tag it is the tag's; N commits after one it is the next version's `.devN` (guess-next-dev of setuptools_scm),
    with the commit as its local segment. Where heads are merged, that segment names their tree too, which is no
    commit's. Raises FetchFailed when the host cannot be asked for its tags, BadInput when no tag is a version.
    """
    commits = set(scratch.git("rev-list", source.commit).stdout.split())
    versions = _versions(mirrors.remote_refs(source.url, [f"{TAGS}*"]), commits)
    if not versions:
        raise BadInput(
            f"{name}: no tag of {source.url} before commit {source.commit[:SHORT]} is a version",
            cure=f'give components.{name}.version, for example version: "1.2.3+g{source.commit[:DIGITS]}"',
        )
    lines = "".join(f"create {TAGS}graft/{commit} {commit}\n" for commit in versions)
    scratch.git("update-ref", "--stdin", stdin=lines.encode())
    said = scratch.git("describe", "--tags", "--long", "--abbrev=40", "--match=graft/*", source.commit).stdout.strip()
    tag, distance, _ = said.rsplit("-", 2)
    local = f"g{source.commit[:DIGITS]}" + (f".m{merged[:DIGITS]}" if source.pulls else "")
    return stamp(versions[tag.removeprefix("graft/")], int(distance), local, merged=bool(source.pulls))


def stamp(tag: Version, distance: int, local: str, *, merged: bool = False) -> str:
    """The version of what lies `distance` commits after a tag. merged: the tag's own commit is not what is built."""
    if distance == 0:
        return f"{tag}+{local}" if merged else str(tag)
    text = str(tag)
    if tag.dev is not None:
        return f"{text.partition('.dev')[0]}.dev{tag.dev + distance}+{local}"
    # The last number counts on: 1.2.3 is followed by 1.2.4, 2.0rc1 by 2.0rc2.
    head, last = re.fullmatch(r"(.*?)(\d+)", text).groups()  # type: ignore[union-attr]
    return f"{head}{int(last) + 1}.dev{distance}+{local}"


def _versions(refs: Mapping[str, str], commits: Iterable[str]) -> dict[str, Version]:
    """commit -> the highest version among the tags on it, for tags on these commits."""
    there = set(commits)
    found: dict[str, Version] = {}
    for ref, commit in refs.items():
        # An annotated tag is listed twice: as the object, which is no commit, and as what it stands on.
        match = TAG.fullmatch(ref.removeprefix(TAGS).removesuffix(PEELED))
        if commit not in there or match is None:
            continue
        try:
            version = Version(match[1])
        except InvalidVersion:
            continue
        if version.local is None and (commit not in found or version > found[commit]):
            found[commit] = version
    return found
