"""What a killed judgement leaves: its folders go with the next one, and only those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graft.patching.git import scratch
from graft.patching.three_way import three_way

HOLD = """
import sys, time
from pathlib import Path
from graft.patching.git import scratch
with scratch(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(300)
"""


def test_a_killed_judgement_leaves_nothing_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, work = tmp_path / "tmp", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    (place / "graft-git-mine").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    scripts = Path(__file__).parents[2] / "scripts"
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(scripts)}
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(work)], env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "in\n"
    with scratch(work):
        assert len(list(place.iterdir())) == 3, "that of a living process stays"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert len(list(place.iterdir())) == 2
    with scratch(work):
        pass
    assert [path.name for path in place.iterdir()] == ["graft-git-mine"], "a folder of somebody else stays"


def test_a_merge_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert three_way(b"a\nb\nc\nd\n", b"A\nb\nc\nd\n", b"a\nb\nc\nD\n") == b"A\nb\nc\nD\n"
    assert list(tmp_path.iterdir()) == []
