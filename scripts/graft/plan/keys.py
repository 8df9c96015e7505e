"""What a step is known by: the hash of all its inputs and of nothing else, readable by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graft.hashes import digest_of

KEY_LENGTH = 12


@dataclass(frozen=True)
class Keyed:
    """A key and the named inputs that it is the hash of."""

    inputs: Mapping[str, str]

    @property
    def key(self) -> str:
        return digest_of(dict(self.inputs))

    @property
    def short(self) -> str:
        return self.key[:KEY_LENGTH]


def first_difference(old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """The name of the first input that differs between two keys; None when they are equal."""
    for name in [*new, *old]:
        if old.get(name) != new.get(name):
            return name
    return None
