"""`graft store`: what is in the store of built components, why it is or is not the one, sharing, and clearing up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from graft.built.store import Entry, Wanted, age_days
from graft.commands.components import store_of, store_registry, wanted_of
from graft.commands.session import Session, load_for, make_plan, plan_for
from graft.console import size
from graft.errors import BadInput, FetchFailed, GraftError
from graft.plan import KEY_LENGTH, Plan
from graft.recipe import bytes_of, load_recipe, recipe_names

SIZE = re.compile(r"[1-9][0-9]*(MB|GB)")
#: A shorter beginning of a key says too little.
MIN_KEY = 4


@dataclass
class Named:
    """What the recipes name today.

    keys: key -> the plans (`recipe arch`) with it, and the component. unplanned: recipes that cannot be planned, and
    why; kept: the components that may be theirs, None where they could be any.
    """

    keys: dict[str, list[str]] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    unplanned: dict[str, str] = field(default_factory=dict)
    kept: set[str] | None = field(default_factory=set)

    def names(self, entry: Entry) -> bool:
        """Whether a recipe names it, or may."""
        record = entry.record
        return record.key in self.keys or self.kept is None or record.component in self.kept


def ls(session: Session) -> None:
    """The result is the number of entries."""
    entries = list(store_of(session).entries())
    named = named_by_recipes(session)
    rows = [
        [
            entry.record.component,
            entry.record.arch,
            entry.record.key[:KEY_LENGTH],
            size(entry.size),
            _days(entry),
            ", ".join(named.keys.get(entry.record.key, [])),
        ]
        for entry in entries
    ]
    session.console.table("built components", ("component", "arch", "key", "size", "used", "named by"), rows)
    _say_unplanned(session, named)
    total = sum(entry.size for entry in entries)
    session.console.result(
        f"{len(entries)} built components, {size(total)}",
        {"entries": [_facts(entry, named) for entry in entries], "size": total},
    )


def gc(session: Session, *, days: int, size_limit: str | None, dry_run: bool) -> None:
    """Remove what no recipe names: unused for more than `days`, then the oldest until all fits into `size_limit`.

    Also folders that are no entry. Raises BadInput for a limit that is none.
    """
    if days < 0:
        raise BadInput(f"{days} days", where="--days", cure="0 or more")
    if size_limit is not None and not SIZE.fullmatch(size_limit):
        raise BadInput(f"{size_limit!r} is no size", where="--size", cure="as 500MB or 20GB")
    store, named = store_of(session), named_by_recipes(session)
    entries = list(store.entries())
    free = sorted((e for e in entries if not named.names(e)), key=lambda entry: entry.used)
    chosen = [entry for entry in free if age_days(entry) > days]
    left = sum(entry.size for entry in entries) - sum(entry.size for entry in chosen)
    for entry in free if size_limit is not None else ():
        if left > bytes_of(str(size_limit)) and entry not in chosen:
            chosen.append(entry)
            left -= entry.size
    broken = store.broken()
    for entry in chosen:
        record = entry.record
        session.console.say(f"  {record.component} {record.arch} {record.key[:KEY_LENGTH]}: {size(entry.size)}")
    for folder in broken:
        session.console.say(f"  {session.paths.relative(folder)}: no entry")
    _say_unplanned(session, named)
    facts = [_facts(entry, named) for entry in chosen]
    if not dry_run:
        store.remove([*(entry.folder for entry in chosen), *broken])
    freed = sum(entry.size for entry in chosen)
    session.console.result(
        f"{'would remove' if dry_run else 'removed'} {len(chosen)} of {len(entries)} built components, {size(freed)}",
        {
            "removed": facts,
            "broken": [session.paths.relative(folder) for folder in broken],
            "freed": freed,
            "left": left,
            "dry_run": dry_run,
        },
    )


def push(session: Session) -> None:
    """Share what the recipe and architecture have here. Raises RegistryFailed, and FetchFailed when nothing is here."""
    from graft.built.remote import push as push_entry

    planned = make_plan(session)
    registry, store = store_registry(session), store_of(session)
    entries = [entry for item in wanted_of(planned).values() if (entry := store.find(item)) is not None]
    if planned.builds and not entries:
        raise FetchFailed("none of its components is built here", cure=f"make image ARCH={planned.arch.name}")
    new = [entry.record.component for entry in entries if push_entry(registry, entry)]
    session.console.result(
        f"shared {len(new)} of {len(entries)} built components in {registry.repository}",
        {"repository": str(registry.repository), "shared": new, "built": [e.record.component for e in entries]},
    )


def pull(session: Session) -> None:
    """Take what the recipe and architecture lack here. Raises BadInput, RegistryFailed and FetchFailed."""
    from graft.built.remote import pull as pull_entry

    planned = make_plan(session)
    registry, store = store_registry(session), store_of(session)
    taken: list[str] = []
    lacking: list[str] = []
    for name, item in wanted_of(planned).items():
        if store.find(item) is None:
            entry = pull_entry(registry, store, item, store.root / f".pull-{name}")
            (lacking if entry is None else taken).append(name)
    for name in lacking:
        session.console.say(f"  {name}: {registry.repository} does not have it; it will be compiled")
    session.console.result(
        f"took {len(taken)} built components from {registry.repository}",
        {"repository": str(registry.repository), "taken": taken, "lacking": lacking},
    )


def why(session: Session, key: str) -> None:
    """The inputs of a key, of the store or of a recipe, and what differs from the nearest entry of the component."""
    named = named_by_recipes(session)
    entries = list(store_of(session).entries())
    item = _one(key, named, entries)
    console = session.console
    title = f"{item.component} {item.arch} {item.key[:KEY_LENGTH]}"
    stored = any(entry.record.key == item.key for entry in entries)
    near = nearest(item, entries)
    there: Mapping[str, str] = near.record.inputs if near is not None else {}
    label = f"in {near.record.key[:KEY_LENGTH]} {near.record.arch}" if near is not None else "in the store"
    differing = differences(item.inputs, there) if near is not None else []
    rows = [
        [
            name,
            item.inputs.get(name, "")[:KEY_LENGTH],
            "" if name not in differing else there.get(name, "")[:KEY_LENGTH],
        ]
        for name in dict.fromkeys([*item.inputs, *differing])
    ]
    console.table(title, ("input", "here", label), rows)
    users = named.keys.get(item.key, [])
    console.say(f"{'built here' if stored else 'not built here'}; named by {', '.join(users) or 'no recipe'}")
    if near is None:
        answer = "no other build of the component is in the store"
    else:
        answer = f"{', '.join(differing)} differs from {near.record.key[:KEY_LENGTH]}"
    console.result(
        answer,
        {
            "component": item.component,
            "arch": item.arch,
            "key": item.key,
            "inputs": dict(item.inputs),
            "stored": stored,
            "recipes": users,
            "nearest": None if near is None else near.record.key,
            "differs": differing,
        },
    )


def nearest(item: Wanted, entries: list[Entry]) -> Entry | None:
    """The entry of the component with the fewest other inputs; of the same architecture, and the latest, if equal."""
    others = [e for e in entries if e.record.component == item.component and e.record.key != item.key]
    return min(
        others,
        key=lambda e: (len(differences(item.inputs, e.record.inputs)), e.record.arch != item.arch, -e.used),
        default=None,
    )


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """The names of the inputs that are not the same."""
    return [name for name in dict.fromkeys([*here, *there]) if here.get(name) != there.get(name)]


def named_by_recipes(session: Session) -> Named:
    """The keys of all built components of all recipes and architectures."""
    found = Named()
    for name in recipe_names(session.paths):
        try:
            recipe = load_recipe(session.paths, session.project, name)
        except GraftError as problem:
            found.unplanned[name], found.kept = problem.what, None
            continue
        if recipe.unlocked:
            continue
        try:
            loaded = load_for(session, recipe)
            plans: list[Plan] = [plan_for(session, loaded, arch) for arch in recipe.arches]
        except GraftError as problem:
            found.unplanned[name] = problem.what
            if found.kept is not None:
                found.kept |= {component for component, facts in recipe.components.items() if facts.is_built}
            continue
        for planned in plans:
            for item in wanted_of(planned).values():
                found.keys.setdefault(item.key, []).append(f"{name} {planned.arch.name}")
                found.wanted[item.key] = item
    return found


def _one(key: str, named: Named, entries: list[Entry]) -> Wanted:
    known = {e.record.key: Wanted(e.record.component, e.record.arch, e.record.key, e.record.inputs) for e in entries}
    known |= named.wanted
    fitting = [item for full, item in known.items() if full.startswith(key.lower())]
    if len(key) < MIN_KEY or len(fitting) != 1:
        which = ", ".join(f"{i.component} {i.arch} {i.key[:KEY_LENGTH]}" for i in fitting[:5])
        raise BadInput(
            f"{key!r} is the beginning of {len(fitting)} keys" + (f": {which}" if which else ""),
            where="KEY",
            cure="graft store ls and graft plan show keys of components; give more of one",
        )
    return fitting[0]


def _say_unplanned(session: Session, named: Named) -> None:
    for name, what in named.unplanned.items():
        session.console.warn(f"{name} cannot be planned, so nothing that may be its is removed: {what}")


def _days(entry: Entry) -> str:
    days = age_days(entry)
    return "today" if days < 1 else f"{days:.0f} d ago"


def _facts(entry: Entry, named: Named) -> dict[str, object]:
    return {
        **entry.record.model_dump(mode="json"),
        "size": entry.size,
        "days": round(age_days(entry), 2),
        "recipes": named.keys.get(entry.record.key, []),
    }
