"""patches/<component>/series.yaml: the order of a component's patches and a record of each.

A patch on disk but not in the series, or in the series but not on disk, is an error: the folder, the series and
the lock agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, StringConstraints, field_validator

from graft.errors import BadInput
from graft.yamlio import Document, Model, Position, findings_error, grammar, read, validate

PATCH_ID = re.compile(r"^[a-z0-9]+(?:-[a-z0-9]+)*$")
ID_RULE = "lower-case letters and digits with single dashes between them, no number in front"

Sentence = Annotated[
    str, grammar(r"[^\x00-\x1f\x7f]+", "one line of text: it says nothing, or holds control characters", 1000)
]
Url = Annotated[str, grammar(r"https://[^\s/]+(?:/[^\s]*)?", "an https address", 500)]
ComponentName = Annotated[
    str, grammar(r"[a-z0-9][a-z0-9-]*", "the name of a component: lower-case letters, digits, dashes")
]
TestFile = Annotated[str, grammar(r"tests/test_[a-z0-9_]+\.py", "a test such as tests/test_fix_it.py")]
Arch = Annotated[str, grammar(r"sm[0-9]{2,3}", "an architecture such as sm90")]

CommitId = Annotated[str, grammar(r"[0-9a-f]{40}", "a commit: 40 hex digits in lower case")]
Version = Annotated[str, grammar(r"[0-9]+(?:\.[0-9A-Za-z]+)*", "a version such as 0.33.0")]
SourceFile = Annotated[str, grammar(r"[^\x00-\x1f\x7f\\]+", "a path in the source", 1024)]

Upstream = Literal["pending", "submitted", "backport", "denied", "inappropriate"]
Target = Literal["source", "wheel"]
Permission = Literal["build-files", "binary"]


class When(Model):
    """For which versions and architectures the patch is meant; what is not given holds for all."""

    version: str | None = None
    arches: tuple[Arch, ...] | None = Field(default=None, strict=False)

    @field_validator("version")
    @classmethod
    def _specifier(cls, value: str | None) -> str | None:
        try:
            SpecifierSet(value or "")
        except InvalidSpecifier:
            raise ValueError(f"{value!r} is not a version range such as '>=0.29,<0.33'") from None
        return value

    def holds(self, version: str, arch: str | None = None) -> bool:
        """Whether the patch is meant for a component version and an architecture (None: any)."""
        in_range = SpecifierSet(self.version or "").contains(version, prereleases=True)
        return in_range and (self.arches is None or arch is None or arch in self.arches)


class GoneText(Model):
    """Text of the component that the patch works around; the patch has served when the file no longer holds it."""

    file: SourceFile
    text: Annotated[str, StringConstraints(min_length=8, max_length=1000)]


class Ends(Model):
    """What `until` says, in a form that can be judged against a version's files.

    version: the first version that no longer needs the patch.
    commit:  the upstream commit that makes it superfluous; judged where the history is at hand.
    gone:    upstream's text that it works around. What the files say wins over what the version number promises.
    """

    version: Version | None = None
    commit: CommitId | None = None
    gone: tuple[GoneText, ...] = Field(default=(), strict=False)


class PatchRecord(Model):
    """What a patch changes, why, where it comes from, when it ends, and the tests that fail without it.

    target: `source` (the component is built from it) or `wheel` (an overlay on the installed wheel).
    until:  what retires the patch: a version, an upstream commit, an issue. `ends` says the same for machines.
    head, base: the upstream commits that a vendored patch is the difference of.
    after:  ids of patches of the same series that must come before this one.
    allows: what is refused in a patch unless the record asks for it.
    """

    id: str
    title: Sentence
    target: Target
    reason: Sentence
    origin: Url
    upstream: Upstream
    until: Sentence
    ends: Ends | None = None
    head: CommitId | None = None
    base: CommitId | None = None
    when: When = When()
    after: tuple[str, ...] = Field(default=(), strict=False)
    author: Sentence
    license: Sentence
    tests: tuple[TestFile, ...] = Field(min_length=1, max_length=1, strict=False)
    allows: tuple[Permission, ...] = Field(default=(), strict=False)

    @field_validator("id")
    @classmethod
    def _id(cls, value: str) -> str:
        if not PATCH_ID.fullmatch(value) or len(value) > 80 or value.split("-")[0].isdigit():
            raise ValueError(f"{value!r} is not a patch id: {ID_RULE}")
        return value

    @property
    def test(self) -> str:
        """Name of its test in the component's folder; the gate runs just this one."""
        return f"tests/test_{self.id.replace('-', '_')}.py"

    @property
    def file(self) -> str:
        """Name of the patch file in the component's folder."""
        return f"{self.id}.patch"


class Series(Model):
    """The whole of one series.yaml."""

    component: ComponentName
    patches: tuple[PatchRecord, ...] = Field(min_length=1, strict=False)


@dataclass(frozen=True)
class Patch:
    """A record with the bytes of its patch file, and where both were read (as the user would type it)."""

    record: PatchRecord
    data: bytes
    path: Path

    @property
    def id(self) -> str:
        return self.record.id


@dataclass(frozen=True)
class PatchSet:
    """All patches of one component, in the order of the series."""

    component: str
    folder: Path
    patches: tuple[Patch, ...]

    def select(self, ids: Sequence[str], where: str | None = None) -> tuple[Patch, ...]:
        """The patches with these ids, in the order of the series.

        Raises BadInput for an unknown id, and for one whose `after` names a patch that is not selected.
        """
        known = {patch.id: patch for patch in self.patches}
        for unknown in [i for i in ids if i not in known]:
            raise BadInput(
                f"there is no patch {self.component}/{unknown}",
                where=where or str(self.folder / "series.yaml"),
                cure=f"the series holds: {', '.join(known)}",
            )
        for patch in known.values():
            missing = [i for i in patch.record.after if patch.id in ids and i not in ids]
            if missing:
                raise BadInput(
                    f"{self.component}/{patch.id} comes after {', '.join(missing)}, which is not selected",
                    where=where or str(self.folder / "series.yaml"),
                    cure=f"add {self.component}/{missing[0]} to the recipe's patches",
                )
        return tuple(patch for patch in self.patches if patch.id in ids)


def check_when(component: str, patches: Iterable[Patch], version: str, arches: Sequence[str] = ()) -> None:
    """Raises BadInput for a patch that its record means for another version, or for none of `arches`.

    One that is meant for some of them is applied there and left out on the others.
    """
    for patch in patches:
        when = patch.record.when
        if not when.holds(version):
            meant, found = f"{component} {when.version}", version
        elif arches and not any(when.holds(version, arch) for arch in arches):
            meant, found = ", ".join(when.arches or ()), ", ".join(arches)
        else:
            continue
        raise BadInput(
            f"{component}/{patch.id} is meant for {meant}, not for {found}",
            where=str(patch.path.parent / "series.yaml"),
            cure=f"its end is: {patch.record.until}. Take it out of the recipe, or widen `when` and run make lock",
        )


def load_patchset(folder: Path) -> PatchSet:
    """The patches of one component. `folder` is patches/<component>. Raises BadInput with every finding."""
    document = read(folder / "series.yaml")
    series = validate(document, Series)
    findings = [*_order(document, series), *_files(document, series, folder)]
    if findings:
        raise findings_error(findings)
    patches = tuple(Patch(r, (folder / r.file).read_bytes(), folder / r.file) for r in series.patches)
    return PatchSet(series.component, folder, patches)


def recorded_patches(folder: Path, ids: Sequence[str]) -> tuple[Patch, ...]:
    """Patches of which only the files are known, as an image has them, in the order of `ids`. Raises BadInput."""
    found = []
    for patch_id in ids:
        # The lock has its hash, and nobody asks such a patch for more than its name.
        record = PatchRecord.model_construct(id=patch_id)
        path = folder / record.file
        if not PATCH_ID.fullmatch(patch_id) or not _is_plain_file(path):
            raise BadInput("the image does not hold the patch", where=str(path))
        found.append(Patch(record, path.read_bytes(), path))
    return tuple(found)


Finding = tuple[str, str]


def _order(document: Document, series: Series) -> Iterable[Finding]:
    """Ids listed twice, and `after` that names nothing or something later."""
    ids = [record.id for record in series.patches]
    for index, record in enumerate(series.patches):
        at: Position = ("patches", index, "id")
        if record.id in ids[:index]:
            yield document.where(at), f"patch {record.id!r} is listed twice"
        for position, name in enumerate(record.after):
            where = document.where(("patches", index, "after", position))
            if name not in ids:
                yield where, f"{record.id} comes after {name!r}, which is not in the series"
            elif name not in ids[:index]:
                yield where, f"{record.id} comes after {name!r}, which stands later in the series"


def _files(document: Document, series: Series, folder: Path) -> Iterable[Finding]:
    """Where the folder and the series disagree."""
    if series.component != folder.name:
        yield document.where(("component",)), f"component {series.component!r} stands in a folder named {folder.name}"
    listed = {record.file for record in series.patches}
    for path in sorted(folder.glob("*.patch")):
        if path.name not in listed:
            yield document.where(("patches",)), f"{path.name} lies in {folder} but is not in the series"
    used: set[str] = set()
    for index, record in enumerate(series.patches):
        if not _is_plain_file(folder / record.file):
            yield document.where(("patches", index, "id")), f"{record.file} is in the series but not in {folder}"
        for position, test in enumerate(record.tests):
            used.add(test)
            if test != record.test:
                where = document.where(("patches", index, "tests", position))
                yield where, f"the test of {record.id} is {record.test}, not {test}"
            if not _is_plain_file(folder / test):
                yield (
                    document.where(("patches", index, "tests", position)),
                    f"test {test} of {record.id} does not exist",
                )
    for path in sorted(folder.glob("tests/test_*.py")):
        if f"tests/{path.name}" not in used:
            yield document.where(("patches",)), f"tests/{path.name} belongs to no patch of the series"


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
