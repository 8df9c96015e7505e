"""Compilers at once: what runs together stays within cores and memory."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.budget import GIB, Machine, Work, critical_path, share, this_machine, turns


def work(name: str, *needs: str, gb: int = 4, seconds: float | None = None) -> Work:
    return Work(name, frozenset(needs), gb * GIB, seconds)


def test_one_build_has_all_cores() -> None:
    assert share([work("a")], Machine(16, 128 * GIB)) == {"a": 16}


def test_memory_bounds_it() -> None:
    assert share([work("a", gb=4)], Machine(16, 24 * GIB)) == {"a": 6}


def test_what_runs_together_shares() -> None:
    assert share([work("a"), work("b")], Machine(16, 128 * GIB)) == {"a": 8, "b": 8}


def test_what_takes_longer_has_more() -> None:
    assert share([work("a", seconds=300), work("b", seconds=100)], Machine(16, 128 * GIB)) == {"a": 12, "b": 4}


def test_what_comes_after_has_all_again() -> None:
    builds = [work("a"), work("b", "a"), work("c", "b")]
    assert share(builds, Machine(8, 128 * GIB)) == {"a": 8, "b": 8, "c": 8}


def test_the_limit_is_for_all_together() -> None:
    assert share([work("a"), work("b")], Machine(16, 128 * GIB), 4) == {"a": 2, "b": 2}


def test_without_memory_there_is_one_each() -> None:
    assert share([work("a"), work("b")], Machine(16, 0)) == {"a": 1, "b": 1}


def test_what_the_budget_holds_is_built_at_once() -> None:
    made = [work("a", seconds=300), work("b", seconds=100)]
    assert turns(made, Machine(4, 128 * GIB)) == [{"a": 3, "b": 1}]
    assert turns([work("a"), work("b")], Machine(2, 128 * GIB)) == [{"a": 1, "b": 1}]


def test_a_long_one_that_would_go_on_alone_waits_for_the_short_one() -> None:
    made = [work("long", seconds=2000), work("short", seconds=100)]
    assert turns(made, Machine(2, 128 * GIB)) == [{"short": 2}, {"long": 2}]
    # What never ran may be as short as the other.
    assert turns([work("long", seconds=2000), work("new")], Machine(2, 128 * GIB)) == [{"new": 1, "long": 1}]
    # With enough cores the short one has one, and the long one hardly misses it.
    assert turns(made, Machine(16, 128 * GIB)) == [{"short": 1, "long": 15}]


@pytest.mark.parametrize(("cores", "memory"), [(2, 128), (8, 8)])
def test_more_than_the_budget_holds_take_turns(cores: int, memory: int) -> None:
    groups = turns([work("a"), work("b"), work("c")], Machine(cores, memory * GIB))
    assert groups == [{"a": 1, "b": 1}, {"c": 2}]


def test_without_memory_for_two_there_is_one_after_the_other() -> None:
    assert turns([work("a"), work("b")], Machine(8, 4 * GIB)) == [{"a": 1}, {"b": 1}]
    assert turns([work("a"), work("b")], Machine(16, 128 * GIB), 1) == [{"a": 1}, {"b": 1}]


def test_what_comes_after_what_it_needs_is_of_its_group() -> None:
    chain = [work("a", seconds=9), work("b", "a", seconds=1)]
    assert turns(chain, Machine(1, 128 * GIB)) == [{"a": 1, "b": 1}]
    # "other" is there already.
    assert turns([work("b", "other")], Machine(2, 128 * GIB)) == [{"b": 2}]


@st.composite
def builds(draw: st.DrawFn) -> list[Work]:
    names = [f"c{n}" for n in range(draw(st.integers(0, 6)))]
    made = []
    for at, name in enumerate(names):
        needs = draw(st.frozensets(st.sampled_from(names[:at]), max_size=3)) if at else frozenset()
        made.append(Work(name, needs, draw(st.integers(1, 8)) * GIB, draw(st.one_of(st.none(), st.floats(0.1, 1e4)))))
    return made


@given(builds(), st.integers(1, 32), st.integers(0, 128))
def test_no_set_of_unrelated_builds_is_over_the_budget(made: list[Work], cores: int, memory: int) -> None:
    jobs = share(made, Machine(cores, memory * GIB))
    assert jobs.keys() == {w.name for w in made}
    before: dict[str, set[str]] = {}
    for w in made:
        before[w.name] = set(w.needs).union(*(before[n] for n in w.needs))
    for size in range(1, len(made) + 1):
        for chosen in itertools.combinations(made, size):
            names = {w.name for w in chosen}
            if any(before[n] & names for n in names) or all(jobs[n] == 1 for n in names):
                continue
            assert sum(jobs[n] for n in names) <= max(cores, size)
            least = sum(w.job_bytes for w in chosen)
            assert sum(jobs[w.name] * w.job_bytes for w in chosen) <= max(memory * GIB, least)
    if len(made) == 1:
        only = made[0]
        assert jobs[only.name] == max(1, min(cores, memory * GIB // only.job_bytes))


@given(builds(), st.integers(1, 16), st.integers(0, 64))
def test_turns_have_each_build_once_and_in_order(made: list[Work], cores: int, memory: int) -> None:
    machine = Machine(cores, memory * GIB)
    groups = turns(made, machine)
    assert sorted(name for group in groups for name in group) == sorted(w.name for w in made)
    by_name = {w.name: w for w in made}
    done: set[str] = set()
    for group in groups:
        members = [by_name[name] for name in group]
        assert group == share(members, machine)
        done |= set(group)
        assert all(w.needs <= done for w in members)
        if all(not w.needs for w in members) and len(members) > 1:
            assert sum(group.values()) <= cores
            assert sum(group[w.name] * w.job_bytes for w in members) <= machine.memory


def test_the_longest_chain() -> None:
    seconds = {"fetch": 30.0, "a": 100.0, "b": 80.0, "c": 50.0, "gate": 10.0}
    needs = {"a": ["fetch"], "b": ["fetch"], "c": ["b"], "gate": ["a", "c", "gone"]}
    assert critical_path(seconds, needs) == ("fetch", "b", "c", "gate")
    assert critical_path({}, {}) == ()


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Machine:
    for name, text in {
        "proc/meminfo": "MemTotal: 9\nMemAvailable:  8388608 kB\n",
        "proc/self/cgroup": cgroup,
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return this_machine(root)


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def test_a_machine_without_limits(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/\n", {}) == Machine(8, 8 * GIB)


def test_the_second_control_groups(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/user/box"
    files = {f"{at}/cpu.max": "250000 100000\n", f"{at}/memory.max": "max\n", f"{at}/memory.current": "5\n"}
    # A limit of a group above holds as well.
    files |= {"sys/fs/cgroup/user/memory.max": f"{4 * GIB}\n", "sys/fs/cgroup/user/memory.current": f"{GIB}\n"}
    assert machine(tmp_path, "0::/user/box\n", files) == Machine(2, 3 * GIB)


def test_the_first_control_groups(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "300000\n",
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{2 * GIB}\n",
        # All of it are files, which make room.
        "sys/fs/cgroup/memory/box/memory.stat": f"cache 7\ninactive_file 5\ntotal_inactive_file {2 * GIB}\n",
    }
    assert machine(tmp_path, "4:cpu,cpuacct:/box\n3:memory:/box\n", files) == Machine(3, 2 * GIB)


def test_less_than_a_core_is_one(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/box\n", {"sys/fs/cgroup/box/cpu.max": "50000 100000\n"}).cores == 1
