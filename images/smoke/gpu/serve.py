"""`vllm serve` with tiny random models: it starts, generates as many tokens as asked for, drafts with MTP, and ends.

Nothing is downloaded: the models and their tokenizer are written here. What the tokens are is not looked at; that every
log-probability is a finite number is.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib import facts
from lib.report import Report

from gpu import devices, models
from gpu.server import HOST, Server, ServerError, free_port, metric, serving

START_SECONDS = 420.0
ANSWER_SECONDS = 120.0
TOKENS = 32
#: Prompts of different lengths, generated for at once; the last is longer than a page of any KV cache.
PROMPTS = ("a", "the quick brown fox", "0123456789 " * 20)
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


def main() -> None:
    known = facts.load()
    report = Report("gpu-serve")
    found = devices.check(known, report)
    if found:
        vllm = str(Path(sys.prefix, "bin", "vllm"))
        for model in models.models_for(found[0].capability[0]):
            with tempfile.TemporaryDirectory(prefix="graft-serve-") as folder:
                serve(report, model, Path(folder), [vllm])
    report.finish()


def command(vllm: list[str], model: models.Model, folder: Path, port: int) -> list[str]:
    return [
        *vllm,
        "serve",
        str(folder),
        "--served-model-name",
        model.name,
        "--load-format",
        "dummy",
        "--host",
        HOST,
        "--port",
        str(port),
        "--max-model-len",
        "2048",
        "--max-num-seqs",
        "8",
        "--gpu-memory-utilization",
        "0.3",
        *model.arguments,
    ]


def environment(folder: Path) -> dict[str, str]:
    """Every cache in a folder that goes away, no network, no statistics."""
    return {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "FLASHINFER_WORKSPACE_BASE": str(folder),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": HOST,
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def serve(report: Report, model: models.Model, folder: Path, vllm: list[str]) -> None:
    """One model, from its files to the end of the server's last process."""
    model_folder = folder / "model"
    model_folder.mkdir()
    models.write(model, model_folder)
    port = free_port()
    left: list[str] = []
    try:
        with serving(
            command(vllm, model, model_folder, port), port, folder / "log", environment(folder), left
        ) as server:
            ask(report, model, server)
    except ServerError as problem:
        report.check(f"{model.name}:served", False, str(problem))
    report.check(
        f"{model.name}:ended", not left, f"left behind: {', '.join(left)}" if left else "nothing is left of it"
    )


def ask(report: Report, model: models.Model, server: Server) -> None:
    """Generate for several prompts at once, and look at the answers. Raises ServerError."""
    seconds = server.wait("/health", START_SECONDS)
    started = time.monotonic()
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        answers = list(pool.map(lambda prompt: generate(server, model, prompt), PROMPTS))
    wrong = [problem for prompt, answer in zip(PROMPTS, answers, strict=True) for problem in problems(prompt, answer)]
    rate = len(PROMPTS) * TOKENS / (time.monotonic() - started)
    report.check(f"{model.name}:served", True, f"answered after {seconds:.0f} s")
    report.check(
        f"{model.name}:tokens",
        not wrong,
        "; ".join(wrong) or f"{len(PROMPTS)} prompts, {TOKENS} tokens each, all finite, {rate:.0f} tokens a second",
    )
    if model.drafts:
        text = server.get("/metrics", ANSWER_SECONDS)
        drafted, accepted = metric(text, DRAFTED), metric(text, ACCEPTED)
        report.check(f"{model.name}:drafts", drafted > 0, f"{drafted:.0f} tokens drafted, {accepted:.0f} accepted")


def generate(server: Server, model: models.Model, prompt: str) -> dict[str, Any]:
    body = {
        "model": model.name,
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
    }
    return server.post("/v1/completions", body, ANSWER_SECONDS)


def problems(prompt: str, answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with one answer of /v1/completions: tokens are counted, not believed."""
    shown = repr(prompt if len(prompt) < 24 else prompt[:20] + "...")
    try:
        usage = answer["usage"]
        choice = answer["choices"][0]
        listed = choice["logprobs"]["token_logprobs"]
        numbers = [float(each) for each in listed]
        counts = (usage["prompt_tokens"], usage["completion_tokens"], len(numbers))
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        return [f"{shown}: the answer lacks {problem}: {str(answer)[:300]}"]
    found = []
    if counts != (len(prompt.encode()), TOKENS, TOKENS):
        found.append(
            f"{shown}: {counts} tokens read, said and listed, wanted {len(prompt.encode())}, {TOKENS}, {TOKENS}"
        )
    if choice.get("finish_reason") != "length":
        found.append(f"{shown}: ended by {choice.get('finish_reason')}, not by the number of tokens")
    if not all(math.isfinite(number) and number <= 1e-3 for number in numbers):
        found.append(f"{shown}: log-probabilities that are none: {numbers[:5]}")
    return found


if __name__ == "__main__":
    main()
