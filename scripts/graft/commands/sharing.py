"""The compile cache that machines share, around one build: entries are brought before it, and given after it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from graft.commands.session import Session
from graft.console import size
from graft.plan import Plan
from graft.recipe import bytes_of

if TYPE_CHECKING:
    from graft.compilecache import Brought, Remote, Unusable


class Sharing:
    """What Redis has for the components of one build. Without Redis, or once it fails, it is nothing: said once."""

    def __init__(self, session: Session, planned: Plan, remote: Remote | None) -> None:
        self._session, self._planned, self._remote = session, planned, remote
        self._brought: dict[str, Brought] = {}

    @property
    def components(self) -> Mapping[str, bool] | None:
        """Component -> whether there are entries for it; None where nothing is shared, as it would be without Redis."""
        has = {name: brought.count > 0 for name, brought in self._brought.items()}
        # What came before Redis failed is as good as ever.
        return has if self._remote is not None or any(has.values()) else None

    def bring(self, names: Iterable[str], folder: Path) -> None:
        """Lay out what Redis has for components, beside the other contexts in `folder`."""
        from graft.build import shared_context
        from graft.compilecache import Brought, Unusable, namespace_of

        limit = bytes_of(self._session.project.compile_cache.size)
        for name in names:
            target = shared_context(folder, name)
            shutil.rmtree(target, ignore_errors=True)
            if self._remote is None:
                continue
            found = self._brought[name] = Brought()
            try:
                self._remote.bring(namespace_of(self._planned, name), target, limit, found)
            except Unusable as problem:
                self._give_up(problem, "what is not here is compiled here")
            if found.count:
                target.chmod(0o755)
                self._say(f"  {name}: {found.count} entries of the shared compile cache, {size(found.size)}")
            if found.damaged:
                self._session.console.warn(
                    f"{len(found.damaged)} entries of the shared compile cache are damaged, and not used for {name}"
                )

    def give(self, names: Collection[str], out: Path) -> None:
        """What builds had for other machines, out of what they gave back, into Redis."""
        from graft.build import new_entries
        from graft.compilecache import Unusable, namespace_of

        for name in names:
            entries = new_entries(out, name)
            if self._remote is None or not entries.is_dir():
                continue
            try:
                given = self._remote.give(
                    namespace_of(self._planned, name),
                    entries,
                    self._session.project.compile_cache.days,
                    self._brought[name].damaged,
                )
            except Unusable as problem:
                self._give_up(problem, "what was compiled is not shared")
                return
            if given.count:
                self._say(f"  {name}: {given.count} new entries for the shared compile cache, {size(given.size)}")

    def _give_up(self, problem: Unusable, but: str) -> None:
        self._remote = None
        self._session.console.warn(
            f"build.yaml: compile_cache.redis: {problem.what}: {but} (what to do: {problem.cure})"
        )

    def _say(self, text: str) -> None:
        self._session.console.say(text)


def sharing(session: Session, planned: Plan) -> Sharing:
    """The Redis that build.yaml names; OFFLINE asks nobody."""
    url = session.project.compile_cache.redis
    if url is None or session.offline:
        return Sharing(session, planned, None)
    from graft.compilecache import connect

    user, password = (os.environ.get(f"GRAFT_REDIS_{name}") or None for name in ("USERNAME", "PASSWORD"))
    return Sharing(session, planned, connect(url, user, password))
