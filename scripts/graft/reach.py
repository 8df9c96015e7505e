"""Which inputs of a recipe without a lock cannot be had from this host, and why.

Hosts are asked once each and all at once, whether they answer at all. What they would say is another matter: without a
lock Graft fetches files of package indexes and of Debian's archive, and no other kind of source; that is a reason, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from graft import net
from graft.pins import Input
from graft.sources import host_of, registry_of

#: Kinds that have a host of their own, and what cannot be done with them here even when it answers.
NOT_FETCHED: Mapping[str, str] = {
    "base": "Graft pulls no images yet",
    "git": "Graft fetches commits only for a lock",
    "pull": "Graft fetches commits only for a lock",
    "archive": "Graft fetches archives only for a lock",
    "image": "Graft pulls no images yet",
}


@dataclass(frozen=True)
class Unreachable:
    """An input, as the plan names it, and why it cannot be had."""

    name: str
    why: str


def unreachable(inputs: Sequence[Input], *, offline: bool) -> list[Unreachable]:
    """The inputs that cannot be had, in their order. offline: no host is asked."""
    hosts = sorted({host for item in inputs if (host := _host(item)) is not None})
    silent = dict.fromkeys(hosts, "not asked: offline") if offline else _ask(hosts)
    return [Unreachable(item.name, why) for item in inputs if (why := _why(item, silent)) is not None]


def _host(item: Input) -> str | None:
    """The host to ask for an input; None where nobody is to be asked, or where it does not matter any more."""
    if item.lost or not item.address or item.kind not in NOT_FETCHED:
        return None
    return registry_of(item.address) if item.kind in ("base", "image") else host_of(item.address)


def _ask(hosts: Iterable[str]) -> dict[str, str]:
    """Host -> why it does not answer; those that do are left out."""
    names = list(hosts)
    if not names:
        return {}
    client = net.session()
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        answers = pool.map(lambda host: net.unanswered(client, f"https://{host}/"), names)
        return {host: why for host, why in zip(names, answers, strict=True) if why is not None}


def _why(item: Input, silent: Mapping[str, str]) -> str | None:
    if item.lost:
        return item.lost
    if item.kind == "apt":
        return "apt's sources are the base image's, and that is not here"
    host = _host(item)
    if host is None:
        # Files of an index that has an address, and what Graft itself brings.
        return "Graft locks no files of a second index yet" if item.kind == "index" and item.address else None
    return f"{host}: {silent[host]}" if host in silent else f"{host} answers, but {NOT_FETCHED[item.kind]}"
