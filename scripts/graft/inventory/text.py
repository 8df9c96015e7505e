"""A difference, or the sizes of one inventory, for people: rows of tables, and Markdown for release notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graft.console import printable, size
from graft.inventory.compare import Change, Difference, Section
from graft.inventory.model import Inventory

#: What release notes show in full; the rest is folded.
IN_FULL = ("components", "patches", "environment", "entrypoint")
COLUMNS = ("what", "before", "after", "size")


def rows(section: Section) -> list[tuple[str, ...]]:
    """One section's table: name, before, after, bytes more or less."""
    return [(change.name, *_sides(section.title, change), _grown(change)) for change in section.changes]


def _sides(title: str, change: Change) -> tuple[str, str]:
    before, after = change.before or "–", change.after or "–"
    if title == "size by component":
        before, after = (size(int(side)) if side is not None else "–" for side in (change.before, change.after))
    return before, after


def _grown(change: Change) -> str:
    return "" if not change.grown else f"{'+' if change.grown > 0 else ''}{size(change.grown)}"


def summary(difference: Difference) -> list[str]:
    """A line for what a puller needs, and one for each thing that is not known."""
    lines = []
    if difference.transfer is not None:
        moved = difference.transfer
        kind = "compressed" if difference.after.compressed else "uncompressed"
        lines.append(
            f"who has {difference.before.name} needs {moved.new} layers, {size(moved.new_bytes)}, for "
            f"{difference.after.name}; {moved.shared} layers, {size(moved.shared_bytes)}, are shared ({kind})"
        )
    lines += [f"{section.title}: {section.unknown}" for section in difference.sections if section.unknown]
    return lines + [f"note: {note}" for side in (difference.before, difference.after) for note in side.notes]


def markdown(difference: Difference, titles: Mapping[str, str]) -> str:
    """A changelog for release notes. titles: component/id -> what the patch is for, where that is known."""
    before, after = difference.before, difference.after
    lines = [f"## {_md(before.name)} → {_md(after.name)}", ""]
    if difference.is_empty:
        lines.append("Nothing that can be compared differs.")
    for section in difference.sections:
        if section.title in IN_FULL and section.changes:
            lines += [f"### {section.title.capitalize()}", "", *_items(section, titles), ""]
    for section in difference.sections:
        if section.title not in IN_FULL and section.changes:
            count = f"{len(section.changes)} differ, {section.same} are the same"
            lines += [f"<details><summary>{section.title.capitalize()}: {count}</summary>", ""]
            lines += [f"| {' | '.join(COLUMNS)} |", "|---|---|---|---|"]
            lines += [f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows(section)]
            lines += ["", "</details>", ""]
    lines += [f"- {_md(line)}" for line in summary(difference)]
    return "\n".join(lines).rstrip()


def _items(section: Section, titles: Mapping[str, str]) -> Iterable[str]:
    for change in section.changes:
        name = f"**{_md(change.name)}**"
        why = f": {_md(titles[change.name])}" if change.name in titles else ""
        before, after = (_md(side) if side is not None else "" for side in (change.before, change.after))
        if change.kind == "added":
            yield f"- {name} added{why} ({after})"
        elif change.kind == "removed":
            yield f"- {name} removed{why} ({before})"
        else:
            yield f"- {name} {before} → {after}{why}"


def _md(value: str) -> str:
    """Text of an image must stay text where Markdown and HTML are rendered."""
    plain = printable(" ".join(value.split()))
    escaped = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return "".join(f"\\{c}" if c in "\\`*_[]|" else c for c in escaped)


def size_rows(inventory: Inventory) -> list[tuple[str, ...]]:
    """Name of a package, bytes for people, its part of all packages; components first, then by size."""
    component_of = {c.distribution: name for name, c in (inventory.components or {}).items() if c.distribution}
    known = [
        (component_of.get(name, ""), kind, name, package.version, package.size)
        for kind, group in (("Python", inventory.python), ("Debian", inventory.debian))
        for name, package in (group or {}).items()
        if package.size is not None
    ]
    total = sum(entry[4] for entry in known) or 1
    known.sort(key=lambda entry: (not entry[0], -entry[4], entry[2]))
    return [(own, kind, name, version, size(b), f"{100 * b / total:.1f} %") for own, kind, name, version, b in known]
