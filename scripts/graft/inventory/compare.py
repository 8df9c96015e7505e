"""The difference of two inventories, section by section. What one side cannot know is said, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from graft.inventory.model import Inventory, Package

T = TypeVar("T")


@dataclass(frozen=True)
class Change:
    """One thing that differs; None: that side does not have it. grown: bytes more, where both sizes are known."""

    name: str
    before: str | None
    after: str | None
    grown: int | None = None

    @property
    def kind(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class Section:
    """What differs of one kind. same: how many are equal. unknown: why it cannot be compared, else empty."""

    title: str
    changes: tuple[Change, ...]
    same: int
    unknown: str = ""


@dataclass(frozen=True)
class Transfer:
    """What somebody who has A needs to get B, in layers and bytes of their files (uncompressed)."""

    shared: int
    shared_bytes: int
    new: int
    new_bytes: int


@dataclass(frozen=True)
class Difference:
    """Everything in which two inventories differ."""

    before: Inventory
    after: Inventory
    sections: tuple[Section, ...]
    transfer: Transfer | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing that could be compared differs."""
        return not any(section.changes for section in self.sections)

    def as_dict(self) -> dict[str, Any]:
        """The difference as `--json` prints it."""
        return {
            "before": _identity(self.before),
            "after": _identity(self.after),
            "equal": self.is_empty,
            "sections": {
                section.title: {
                    "changes": [{**asdict(change), "kind": change.kind} for change in section.changes],
                    "same": section.same,
                    "unknown": section.unknown,
                }
                for section in self.sections
            },
            "transfer": asdict(self.transfer) if self.transfer else None,
        }


def compare(before: Inventory, after: Inventory) -> Difference:
    """A's and B's difference, in the order in which people ask for it."""
    sizes = before.size_kind == after.size_kind

    def section(title: str, of: Callable[[Inventory], Mapping[str, T] | None], said: Callable[[T], str]) -> Section:
        return _section(title, before, after, of, said, sizes)

    sections = (
        _facts(before, after),
        section("components", lambda i: i.components, str),
        section("patches", lambda i: i.patches, lambda digest: digest[:12]),
        section("Python packages", lambda i: i.python, lambda p: p.version),
        section("Debian packages", lambda i: i.debian, lambda p: p.version),
        section("environment", lambda i: i.env, str),
        section("entrypoint", _entrypoint, str),
        section("GPU code", lambda i: i.gpu, " ".join),
        section("operators", _operators, str),
        _component_sizes(before, after),
        _layers(before, after),
    )
    return Difference(before, after, sections, _transfer(before, after))


def _section(
    title: str,
    before: Inventory,
    after: Inventory,
    of: Callable[[Inventory], Mapping[str, T] | None],
    said: Callable[[T], str],
    sizes: bool,
) -> Section:
    old, new = of(before), of(after)
    blind = [side.name for side, value in ((before, old), (after, new)) if value is None]
    if old is None or new is None:
        return Section(title, (), 0, f"not known of {' and '.join(blind)}")
    changes, same = [], 0
    for name in _ordered(old, new):
        one = said(old[name]) if name in old else None
        other = said(new[name]) if name in new else None
        if one == other:
            same += 1
        else:
            changes.append(Change(name, one, other, _grown(old.get(name), new.get(name)) if sizes else None))
    return Section(title, tuple(changes), same)


def _facts(before: Inventory, after: Inventory) -> Section:
    """Only what both know: a lock has no key, and a recipe no image."""
    both = [name for name in after.facts if name in before.facts]
    changed = [name for name in both if before.facts[name] != after.facts[name]]
    changes = tuple(Change(name, before.facts[name], after.facts[name]) for name in changed)
    return Section("facts", changes, len(both) - len(changed))


def _ordered(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Names in B's order, then what only A has; both sides keep an order that means something, or are sorted."""
    return list(dict.fromkeys([*new, *old]))


def _grown(old: object, new: object) -> int | None:
    sizes = [value.size if isinstance(value, Package) else None for value in (old, new)]
    if old is None and sizes[1] is not None:
        return sizes[1]
    if new is None and sizes[0] is not None:
        return -sizes[0]
    return None if sizes[0] is None or sizes[1] is None else sizes[1] - sizes[0]


def _entrypoint(inventory: Inventory) -> dict[str, str] | None:
    return None if inventory.entrypoint is None else {"entrypoint": " ".join(inventory.entrypoint)}


def _operators(inventory: Inventory) -> dict[str, str] | None:
    if inventory.operators is None:
        return None
    return {operator: library for library, named in sorted(inventory.operators.items()) for operator in named}


def _component_sizes(before: Inventory, after: Inventory) -> Section:
    title = "size by component"
    old, new = before.component_sizes(), after.component_sizes()
    if before.size_kind != after.size_kind or not old or not new:
        return Section(title, (), 0, "one side's sizes are of downloads or not known, the other's of installed files")
    names = _ordered(old, new)
    changes = tuple(
        Change(name, _text(old.get(name)), _text(new.get(name)), new.get(name, 0) - old.get(name, 0))
        for name in names
        if old.get(name) != new.get(name)
    )
    return Section(title, changes, len(names) - len(changes))


def _layers(before: Inventory, after: Inventory) -> Section:
    title = "layers"
    if before.layers is None or after.layers is None:
        blind = [side.name for side in (before, after) if side.layers is None]
        return Section(title, (), 0, f"not known of {' and '.join(blind)}")
    old = {layer.digest: layer for layer in before.layers}
    new = {layer.digest: layer for layer in after.layers}
    changes = [
        *(Change(layer.step, None, digest[7:19], layer.size) for digest, layer in new.items() if digest not in old),
        *(Change(layer.step, digest[7:19], None, -layer.size) for digest, layer in old.items() if digest not in new),
    ]
    return Section(title, tuple(changes), len(old.keys() & new.keys()))


def _transfer(before: Inventory, after: Inventory) -> Transfer | None:
    if before.layers is None or after.layers is None:
        return None
    have = {layer.digest for layer in before.layers}
    shared = [layer.size for layer in after.layers if layer.digest in have]
    new = [layer.size for layer in after.layers if layer.digest not in have]
    return Transfer(len(shared), sum(shared), len(new), sum(new))


def _identity(inventory: Inventory) -> dict[str, Any]:
    facts = dict(inventory.facts)
    return {"name": inventory.name, "kind": inventory.kind, "facts": facts, "notes": list(inventory.notes)}


def _text(size: int | None) -> str | None:
    return None if size is None else str(size)
