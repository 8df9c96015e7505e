"""The served part of the GPU tier, against a program that only pretends to be `vllm`.

Each runs in a process of its own: the test takes in, and ends, everything that descends from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gpu.server import metric

SMOKE = Path(__file__).parents[2] / "images" / "smoke"

#: What a `vllm serve` would do, and one thing that it does wrong, by name.
FAKE = r"""
import http.server, json, os, signal, subprocess, sys, time
from pathlib import Path
wrong, argv = sys.argv[1], sys.argv[2:]
assert argv[0] == "serve"
options = dict(zip(argv[2::2], argv[3::2]))
assert options["--load-format"] == "dummy" and options["--host"] == "127.0.0.1"
assert json.loads((Path(argv[1]) / "config.json").read_text())["model_type"] == "glm_moe_dsa"
assert os.environ["HF_HUB_OFFLINE"] == "1" and os.environ["HOME"] == str(Path(argv[1]).parent)
if wrong == "dies":
    sys.exit("the cause of it")
if wrong == "deaf":
    time.sleep(60)
if wrong == "leaves":
    left = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", left], start_new_session=True)
if wrong == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready = time.monotonic() + 0.2

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def say(self, text, code=200):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/health":
            self.say("", 200 if time.monotonic() > ready else 503)
        drafted = 0 if wrong == "no-drafts" else 90
        self.say(f'vllm:spec_decode_num_draft_tokens_total{{model="x"}} {drafted}.0\n'
                 'vllm:spec_decode_num_accepted_tokens_total{model="x"} 3.0\n')

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if wrong == "error":
            return self.say('{"error": "CUDA error: no kernel image"}', 500)
        if wrong == "no-json":
            return self.say("<html>")
        count = asked["max_tokens"] - (wrong == "short")
        logprobs = [-1.5] * (count - (wrong == "uncounted"))
        if wrong == "nan":
            logprobs[3] = float("nan")
        answer = {
            "usage": {"prompt_tokens": len(asked["prompt"].encode()), "completion_tokens": count},
            "choices": [{"logprobs": {"token_logprobs": logprobs},
                         "finish_reason": "stop" if wrong == "stops" else "length"}],
        }
        if wrong == "no-usage":
            del answer["usage"]
        self.say(json.dumps(answer))

http.server.ThreadingHTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
"""

DRIVER = """
import sys
from pathlib import Path
from gpu import models, serve, server
from lib.report import Report
server.POLL_SECONDS, server.GRACE_SECONDS, serve.START_SECONDS = 0.05, 1.0, float(sys.argv[4])
report = Report("gpu-serve")
serve.serve(report, models.GLM_DSA, Path(sys.argv[1]), [sys.executable, sys.argv[2], sys.argv[3]])
report.finish()
"""


def run(tmp_path: Path, wrong: str, start_seconds: float = 20.0) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit status, and check -> (verdict, detail)."""
    (tmp_path / "vllm.py").write_text(FAKE, encoding="utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    # A proxy that leads nowhere: none may be asked on the way to this machine.
    env = {
        **os.environ,
        "PYTHONPATH": str(SMOKE),
        "http_proxy": "http://127.0.0.1:1",
        "HTTP_PROXY": "http://127.0.0.1:1",
    }
    argv = [sys.executable, "-c", DRIVER, folder, tmp_path / "vllm.py", wrong, str(start_seconds)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, {check["id"]: (check["verdict"], check["detail"]) for check in report["checks"]}


def test_a_server_that_generates_and_ends_is_green(tmp_path: Path) -> None:
    code, said = run(tmp_path, "nothing")
    assert code == 0, said
    assert {name: verdict for name, (verdict, _) in said.items()} == {
        "glm-dsa-mtp:served": "pass",
        "glm-dsa-mtp:tokens": "pass",
        "glm-dsa-mtp:drafts": "pass",
        "glm-dsa-mtp:ended": "pass",
    }
    assert "3 prompts, 32 tokens each" in said["glm-dsa-mtp:tokens"][1]
    assert "90 tokens drafted, 3 accepted" in said["glm-dsa-mtp:drafts"][1]


@pytest.mark.parametrize(
    ("wrong", "check", "says"),
    [
        ("dies", "served", "ended with 1: the cause of it"),
        ("error", "served", '/v1/completions answered 500: {"error": "CUDA error'),
        ("no-json", "served", "answered no JSON: <html>"),
        ("short", "tokens", "'a': (1, 31, 31) tokens read, said and listed, wanted 1, 32, 32"),
        ("uncounted", "tokens", "(1, 32, 31)"),
        ("nan", "tokens", "log-probabilities that are none"),
        ("stops", "tokens", "ended by stop"),
        ("no-usage", "tokens", "the answer lacks 'usage'"),
        ("no-drafts", "drafts", "0 tokens drafted"),
        ("stubborn", "ended", "did not end within 1 s of SIGTERM"),
        ("leaves", "ended", "left behind: python"),
    ],
)
def test_anything_else_is_red(tmp_path: Path, wrong: str, check: str, says: str) -> None:
    code, said = run(tmp_path, wrong)
    assert code == 1
    red = {name.removeprefix("glm-dsa-mtp:"): detail for name, (verdict, detail) in said.items() if verdict == "fail"}
    assert says in red[check], red
    assert not alive(tmp_path), "nothing of it runs on"


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    started = time.monotonic()
    code, said = run(tmp_path, "deaf", 0.5)
    assert code == 1
    assert "/health did not answer within 0.5 s" in said["glm-dsa-mtp:served"][1]
    assert time.monotonic() - started < 20
    assert not alive(tmp_path)


def alive(tmp_path: Path) -> list[str]:
    """Command lines of processes that name the test's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        found += [line] if str(tmp_path) in line else []
    return found


def test_a_counter_is_summed_over_its_labels() -> None:
    text = 'a_total{x="1"} 2.0\na_total{x="2"} 3\na_total_created 9\nb_total 5.0\n'
    assert (metric(text, "a_total"), metric(text, "b_total"), metric(text, "c_total")) == (5.0, 5.0, 0)
