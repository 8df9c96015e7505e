"""NCCL's all-reduce over all visible GPUs: the sums are right, and the library that made them is the lock's.

One process for each GPU, which this file is too; they meet in a file, so no network is needed. One GPU makes a group of
one, which still runs the library.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib import child, facts
from lib.facts import Facts, normalise
from lib.report import Report

from gpu import devices

# Importing torch takes minutes where several tests compile bytecode on few cores.
SECONDS = 600.0
#: Elements of one tensor: a few hundred bytes go another way through NCCL than megabytes.
SIZES = (7, 1 << 20)
# Small whole numbers: their sums are exact in every one of these types, whatever the order.
TYPES = ("float32", "bfloat16", "int64")
# Only this machine takes part, and a container without network has no other interface.
SETTINGS = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}


def main() -> None:
    if len(sys.argv) > 1:
        rank(json.loads(sys.argv[1]))
        return
    known = facts.load()
    report = Report("gpu-nccl")
    found = devices.check(known, report)
    if found:
        check(known, report, group(len(found), "nccl", "cuda"))
    report.finish()


def group(size: int, backend: str, kind: str) -> list[child.Finished]:
    """Run `size` ranks at once; how each ended."""
    with tempfile.TemporaryDirectory(prefix="graft-nccl-") as folder:
        tasks = [
            {"rank": number, "size": size, "backend": backend, "kind": kind, "store": f"{folder}/store"}
            for number in range(size)
        ]
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(start, tasks))


def start(task: Mapping[str, Any]) -> child.Finished:
    return child.run([sys.executable, "-P", __file__, json.dumps(task)], seconds=SECONDS, env=SETTINGS)


def rank(task: Mapping[str, Any]) -> None:
    """One member of the group; prints one JSON line with what it found."""
    import torch
    import torch.distributed as dist

    number, size = task["rank"], task["size"]
    device = torch.device(task["kind"], number if task["kind"] == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(task["backend"], init_method=f"file://{task['store']}", rank=number, world_size=size)
    wrong = []
    started = time.monotonic()
    for name in TYPES:
        for elements in SIZES:
            tensor = numbers(elements, number).to(device=device, dtype=getattr(torch, name))
            dist.all_reduce(tensor)
            want = sum(numbers(elements, other) for other in range(size))
            differ = int((tensor.cpu().to(torch.int64) != want).sum())
            wrong += [f"{differ} of {elements} {name} differ"] if differ else []
    seconds = time.monotonic() - started
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = sorted({line.split(None, 5)[5] for line in maps if "/libnccl.so" in line})
    version = list(torch.cuda.nccl.version()) if device.type == "cuda" else None
    dist.destroy_process_group()
    print(json.dumps({"rank": number, "wrong": wrong, "mapped": mapped, "nccl": version, "seconds": round(seconds, 2)}))


def numbers(elements: int, seed: int) -> Any:
    """Whole numbers from 0 to 7, which every rank can make for every other."""
    import torch

    return torch.randint(8, (elements,), generator=torch.Generator("cpu").manual_seed(seed))


def answer(done: child.Finished) -> dict[str, Any] | None:
    """A rank's JSON line; None when it ended in another way."""
    last = done.stdout.rstrip().splitlines()[-1:]
    if not done.ok or not last or not last[0].startswith("{"):
        return None
    found: dict[str, Any] = json.loads(last[0])
    return found


def check(known: Facts, report: Report, done: Sequence[child.Finished]) -> None:
    said = check_sums(report, done)
    if said:
        check_library(known, report, said)


def check_sums(report: Report, done: Sequence[child.Finished]) -> list[dict[str, Any]]:
    """Every rank ran to its end and found the right sums; their answers, none when one is missing."""
    answers = [answer(ended) for ended in done]
    failed = [f"rank {number}: {done[number].why()}" for number, said in enumerate(answers) if said is None]
    report.check("ranks", not failed, "; ".join(failed) or f"{len(done)} ran to their end")
    said = [each for each in answers if each is not None]
    if failed or not said:
        return []
    wrong = [f"rank {each['rank']}: {', '.join(each['wrong'])}" for each in said if each["wrong"]]
    tried = f"{', '.join(TYPES)} in {len(SIZES)} sizes over {len(said)} ranks, {max(e['seconds'] for e in said)} s"
    report.check("all-reduce", not wrong, "; ".join(wrong) or f"exact: {tried}")
    return said


def check_library(known: Facts, report: Report, said: Sequence[Mapping[str, Any]]) -> None:
    """Every rank mapped one and the same libnccl, below site-packages, of the locked version."""
    files = {file for each in said for file in each["mapped"]}
    inside = all(Path(file).resolve().is_relative_to(known.site_packages.resolve()) for file in files)
    report.check("library", len(files) == 1 and inside, ", ".join(sorted(files)) or "no rank mapped a libnccl")
    locked = {v for n, v in known.packages.items() if normalise(n).startswith("nvidia-nccl")}
    used = {".".join(map(str, each["nccl"] or [])) for each in said}
    same = len(used) == 1 and used == {".".join(version.split(".")[:3]) for version in locked}
    report.check(
        "version", same, f"NCCL {', '.join(sorted(used))}, the lock says {', '.join(sorted(locked)) or 'none'}"
    )


if __name__ == "__main__":
    main()
