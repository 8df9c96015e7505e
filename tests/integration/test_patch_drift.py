"""Real drift: the shipped patches against the next releases of vLLM and FlashInfer, from the index.

Downloads about 750 MB into the project's own store, where `make image` finds the pinned half of it again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GUARD = "vllm/v1/attention/backends/mla/flashmla_sparse.py"
pytestmark = pytest.mark.timeout(600)


def check(*words: str) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "RECIPE": "", "OFFLINE": ""}
    argv = [sys.executable, "-m", "graft", "patch", "check", *words, "--recipe", "glm-dsa"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def vllm() -> dict[str, Any]:
    code, out = check("vllm", "--against", "0.33.0", "--json")
    assert code == 5
    return {patch["patch"]: patch for patch in json.loads(out)["patches"]}


def test_the_guard_behind_the_dcp_defaults_is_gone(vllm: dict[str, Any]) -> None:
    """Its own lines stand twice now, so it does not apply; and it has served, which the files prove."""
    patch = vllm["vllm/glm-dsa-dcp-defaults"]
    assert (patch["verdict"], patch["end_reached"]) == ("ambiguous", True)
    assert patch["end"] == f"{GUARD} no longer holds what it works around"
    assert [hunk["verdict"] for hunk in patch["hunks"]] == ["ambiguous", "offset"]
    assert "three-way merge" in patch["hunks"][0]["detail"]
    assert "graft patch drop vllm/glm-dsa-dcp-defaults" in patch["cure"]


def test_the_indexer_scales_are_merged_file_by_file(vllm: dict[str, Any]) -> None:
    patch = vllm["vllm/mtp-indexer-scales"]
    assert (patch["verdict"], patch["end_reached"]) == ("merged", True)
    assert [(hunk["path"], hunk["verdict"]) for hunk in patch["hunks"]] == [
        ("vllm/model_executor/models/deepseek_mtp.py", "merged"),
        ("vllm/models/deepseek_v32/nvidia/mtp.py", "merged"),
    ]
    assert all("comments" in hunk["detail"] and hunk["upstream"] for hunk in patch["hunks"])


def test_the_norm_scale_is_merged_in_other_words() -> None:
    code, out = check("flashinfer", "--against", "0.7.2.post1", "--json")
    (patch,) = json.loads(out)["patches"]
    assert (code, patch["verdict"], patch["end_reached"]) == (5, "merged", True)
    assert [hunk["verdict"] for hunk in patch["hunks"]] == ["merged", "merged"]
    assert patch["when"]


@pytest.mark.parametrize(("component", "version"), [("vllm", "0.32.0"), ("flashinfer", "0.7.0.post1")])
def test_the_pins_themselves_can_be_built(component: str, version: str) -> None:
    code, out = check(component, "--against", version, "--json", "--commute")
    found = json.loads(out)
    assert code == 0
    assert {patch["verdict"] for patch in found["patches"]} == {"exact"}
    assert not any(patch["end_reached"] for patch in found["patches"])
    assert found["notes"] == []


def test_a_version_that_does_not_exist() -> None:
    code, out = check("vllm", "--against", "0.99.0", "--json")
    assert (code, json.loads(out)["exit_code"]) == (2, 2)
