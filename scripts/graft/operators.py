"""recipes/locks/<name>.operators.yaml: what the image's extensions register, so that a lost kernel is seen.

The machine writes it, from what a gate run found, and people commit it. It is an input of the gate and of no image: an
image is the same whether its operators are recorded or not. Architectures whose operators are the same share an entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from graft.errors import BadInput
from graft.hashes import digest_of
from graft.lock import Sha256, refuse_newer, write_atomic
from graft.paths import Paths
from graft.project import Slug
from graft.yamlio import Model, dump, parse, validate

FORMAT = 2
HEADER = (
    "Made by `make image` with its first green gate, and by `make lock OPERATORS=1`; do not edit.\n"
    "file below site-packages (torch: what importing it registers) -> operators, each with the keys that have a kernel."
)

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$")]
Operator = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+(::[A-Za-z0-9_.]+)?( [A-Za-z0-9]+)*$")]
#: file -> its operators, sorted.
Operators = Mapping[str, tuple[str, ...]]


class Recorded(Model):
    """The operators of some architectures."""

    arches: tuple[Slug, ...] = Field(min_length=1, strict=False)
    files: dict[FileName, Annotated[tuple[Operator, ...], Field(min_length=1, strict=False)]] = Field(min_length=1)

    @field_validator("files")
    @classmethod
    def _sorted(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for file, operators in value.items():
            for one, other in itertools.pairwise(operators):
                if one.split(" ")[0] == other.split(" ")[0]:
                    raise ValueError(f"{file}: {one.split(' ')[0]} is listed twice")
                if one > other:
                    raise ValueError(f"{file}: {other!r} stands behind {one!r}, and the list is sorted")
        return value


class OperatorList(Model):
    """The whole file; digest: of everything above it, so that an edit by hand is seen."""

    operators: Literal[2]
    recipe: str
    recorded: tuple[Recorded, ...] = Field(min_length=1, strict=False)
    digest: Sha256

    @field_validator("recorded")
    @classmethod
    def _once(cls, value: tuple[Recorded, ...]) -> tuple[Recorded, ...]:
        arches = [arch for entry in value for arch in entry.arches]
        for arch in arches:
            if arches.count(arch) > 1:
                raise ValueError(f"{arch} is recorded twice")
        return value

    def of(self, arch: str) -> Operators | None:
        """What is recorded for an architecture; None where nothing is."""
        return next((entry.files for entry in self.recorded if arch in entry.arches), None)


def load_operators(paths: Paths, recipe: str, arches: Sequence[str]) -> OperatorList | None:
    """The recipe's recorded operators; None where there is no such file.

    Raises BadInput for a file that this Graft did not write, or that has an architecture which is none of the
    recipe's.
    """
    path = paths.operators(recipe)
    where = paths.relative(path)
    cure = f"git checkout {where}; or remove it, and the next green gate records it again"
    if not path.is_file():
        return None
    try:
        document = parse(path.read_bytes(), path)
        data = document.data if isinstance(document.data, dict) else {}
        written = data.get("operators")
        refuse_newer(written, FORMAT, "the list of operators", where)
        if written == 1:
            anew = f"remove it: the next green gate, or make lock OPERATORS=1 RECIPE={recipe}, records it again"
            raise BadInput(f"the list of operators has format 1, this Graft writes {FORMAT}", where=where, cure=anew)
        found = validate(document, OperatorList)
        if digest_of({key: value for key, value in data.items() if key != "digest"}) != found.digest:
            raise BadInput("the list of operators was edited by hand: its digest does not fit", where=where)
    except BadInput as problem:
        problem.cure = problem.cure or cure
        raise
    if found.recipe != recipe:
        raise BadInput(f"these are the operators of recipe {found.recipe!r}", where=where, cure=cure)
    for arch in [arch for entry in found.recorded for arch in entry.arches if arch not in arches]:
        raise BadInput(
            f"operators are recorded for {arch}, which is no architecture of the recipe", where=where, cure=cure
        )
    return found


def with_recorded(old: OperatorList | None, recipe: str, arch: str, files: Operators) -> OperatorList:
    """The list with what one architecture has now, in place of what it had."""
    groups = [(set(entry.arches) - {arch}, entry.files) for entry in old.recorded] if old is not None else []
    new = {file: tuple(operators) for file, operators in sorted(files.items())}
    same = next((arches for arches, recorded in groups if recorded == new), None)
    if same is not None:
        same.add(arch)
    else:
        groups.append(({arch}, new))
    entries = [{"arches": sorted(arches, key=_number), "files": held} for arches, held in groups if arches]
    body: dict[str, Any] = {
        "operators": FORMAT,
        "recipe": recipe,
        "recorded": sorted(entries, key=lambda one: _number(one["arches"][0])),
    }
    return OperatorList.model_validate({**body, "digest": digest_of(body)})


def write_operators(paths: Paths, new: OperatorList) -> None:
    """Replace the recipe's file."""
    paths.locks.mkdir(parents=True, exist_ok=True)
    write_atomic(paths.operators(new.recipe), dump(new.model_dump(mode="json"), HEADER))


def _number(arch: str) -> tuple[int, str]:
    """sm90 before sm100."""
    return len(arch), arch
