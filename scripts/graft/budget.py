"""How many compilers a build may start: the cores and the free memory of this machine, shared by what builds at once.

Two components that do not need each other are built at the same time, and neither knows of the other. So the shares are
made here: whatever runs together stays within the budget, as far as one compiler for each allows that.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
#: Above as many builds, all are taken to run at once: sets of them are no longer looked at one by one.
MOST_LOOKED_AT = 12
#: How much longer builds at once may last than one after the other: much of a build does not use all its compilers.
LONGER = 1.1
#: What a build is taken to last that never ran here, in seconds; of matter only beside others.
UNKNOWN_SECONDS = 60.0


@dataclass(frozen=True)
class Machine:
    """cores: that may be used. memory: bytes that are free for new processes."""

    cores: int
    memory: int


@dataclass(frozen=True)
class Work:
    """One build. needs: builds that come before it. job_bytes: peak of one compiler. seconds: what it took last."""

    name: str
    needs: frozenset[str]
    job_bytes: int
    seconds: float | None = None


def this_machine(root: Path = Path("/")) -> Machine:
    """What this process may use: affinity and free memory, both bounded by the control group it is in (1 and 2)."""
    cores = len(os.sched_getaffinity(0))
    memory = _available(root)
    groups = root / "sys/fs/cgroup"
    for folder in _own_groups(root, groups):
        quota = _words(folder / "cpu.max") or [
            *_words(folder / "cpu.cfs_quota_us"),
            *_words(folder / "cpu.cfs_period_us"),
        ]
        if len(quota) == 2 and quota[0].isdigit() and int(quota[1]) > 0:
            cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            memory = min(memory, max(0, limit - used + _reclaimable(folder)))
    return Machine(cores, memory)


def share(work: Sequence[Work], machine: Machine, limit: int | None = None) -> dict[str, int]:
    """Build -> compilers at once, one at least. limit: for all of them together, in place of the cores.

    Jobs are handed out one by one, to the build that would take longest with what it has, while every set of builds
    that may run together stays within cores and memory.
    """
    cores = limit or machine.cores
    jobs = {w.name: 1 for w in work}
    by_name = {w.name: w for w in work}
    together = list(_together(work))

    def fits(name: str) -> bool:
        return all(
            sum(jobs[n] for n in names) < cores
            and sum(jobs[n] * by_name[n].job_bytes for n in names) + by_name[name].job_bytes <= machine.memory
            for names in together
            if name in names
        )

    while growing := [w for w in work if fits(w.name)]:
        slowest = max(growing, key=lambda w: (_seconds(w) / jobs[w.name], w.name))
        jobs[slowest.name] += 1
    return jobs


def turns(work: Sequence[Work], machine: Machine, limit: int | None = None) -> list[dict[str, int]]:
    """Groups of builds, one after the other, each with the shares of its builds. `needs` without cycles.

    Builds are in one group as far as the budget allows, unless it is known that they would end later for it: with one
    compiler each, a long one goes on alone after the others and leaves cores idle. What is soon finished comes first,
    because what is finished is kept.
    """
    names = frozenset(w.name for w in work)
    waiting = sorted(work, key=lambda w: (_seconds(w), w.name))
    groups: list[dict[str, int]] = []
    before: set[str] = set()
    while waiting:
        group: list[Work] = []
        while (build := _next(waiting, group, names - before, machine, limit)) is not None:
            group.append(build)
            waiting.remove(build)
        groups.append(share(group, machine, limit))
        before |= groups[-1].keys()
    return groups


def _next(
    waiting: Sequence[Work], group: Sequence[Work], to_come: frozenset[str], machine: Machine, limit: int | None
) -> Work | None:
    """The first build that can be of the group. to_come: builds that no earlier group has."""
    have = {member.name for member in group}
    for build in waiting:
        if not (build.needs & to_come) - have and (not group or _gains(group, build, machine, limit)):
            return build
    return None


def _gains(group: Sequence[Work], build: Work, machine: Machine, limit: int | None) -> bool:
    """Whether a build can run beside a group: within the budget, and not known to last longer so than after it."""
    wider = [*group, build]
    shares = share(wider, machine, limit)
    by_name = {w.name: w for w in wider}
    for names in _together(wider):
        memory = sum(shares[name] * by_name[name].job_bytes for name in names)
        if len(names) > 1 and (
            sum(shares[name] for name in names) > (limit or machine.cores) or memory > machine.memory
        ):
            return False
    if any(w.seconds is None for w in wider):
        return True
    after = _lasts(group, share(group, machine, limit)) + _lasts([build], share([build], machine, limit))
    return _lasts(wider, shares) <= LONGER * after


def _lasts(work: Sequence[Work], shares: Mapping[str, int]) -> float:
    """How long builds last, against others: as if all their compilers had something to do all the time."""
    seconds = {w.name: _seconds(w) / shares[w.name] for w in work}
    return sum(seconds[name] for name in critical_path(seconds, {w.name: w.needs for w in work}))


def _seconds(build: Work) -> float:
    return build.seconds or UNKNOWN_SECONDS


def critical_path(seconds: Mapping[str, float], needs: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The chain of steps, first to last, that no other step can shorten. Without cycles; `needs` may name others."""
    ends: dict[str, tuple[float, tuple[str, ...]]] = {}

    def end(name: str) -> tuple[float, tuple[str, ...]]:
        if name not in ends:
            before = max((end(n) for n in sorted(needs.get(name, ())) if n in seconds), default=(0.0, ()))
            ends[name] = before[0] + seconds[name], (*before[1], name)
        return ends[name]

    return max((end(name) for name in sorted(seconds)), default=(0.0, ()))[1]


def _together(work: Sequence[Work]) -> Iterator[frozenset[str]]:
    """The largest sets of builds of which none needs another, directly or not."""
    names = [w.name for w in work]
    if len(names) > MOST_LOOKED_AT:
        yield frozenset(names)
        return
    before = _before(work)
    found: list[frozenset[str]] = []
    for size in range(len(names), 0, -1):
        for chosen in map(frozenset, itertools.combinations(names, size)):
            is_new = not any(chosen <= larger for larger in found)
            if is_new and not any(before[name] & chosen for name in chosen):
                found.append(chosen)
    yield from found


def _before(work: Sequence[Work]) -> dict[str, frozenset[str]]:
    direct = {w.name: w.needs for w in work}
    before: dict[str, frozenset[str]] = {}

    def of(name: str) -> frozenset[str]:
        if name not in before:
            known = direct.get(name, frozenset())
            before[name] = known.union(*(of(other) for other in known))
        return before[name]

    for name in direct:
        of(name)
    return before


def _available(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    # A kernel that does not say: one compiler at a time.
    return 0


def _own_groups(root: Path, groups: Path) -> Iterator[Path]:
    """The control groups of this process, innermost first; the limits of all of them hold."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = [name for name in controllers.split(",") if name in ("cpu", "memory")]
        for top in [groups] if not controllers else [groups / controllers, *(groups / name for name in names)]:
            inner = top / path.strip("/")
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _reclaimable(folder: Path) -> int:
    """Bytes of the page cache that a group counts as used and gives up first: after a build that is most of it."""
    words = _words(folder / "memory.stat")
    stat = dict(zip(words[::2], words[1::2], strict=False))
    return int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _number(*files: Path) -> int | None:
    for file in files:
        words = _words(file)
        if len(words) == 1 and words[0].isdigit():
            return int(words[0])
    return None
