"""`graft inspect` without an engine: the program in a folder that stands for the image, the table and the verdicts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_elf
import pytest
from docker.errors import APIError
from requests import Response

from graft.cli import main
from graft.commands import inspect as command
from graft.console import Console
from graft.errors import BadInput, GateFailed
from graft.gate.tests import Ended
from graft.inspection import Answer, inspect_image, matrix, read_program, summary
from graft.inspection.run import HOME
from graft.inspection.table import runtime_text
from graft.recipe import Waiver
from graft.trial.containers import Job

IMAGES = Path(__file__).parents[2] / "images"
SITE = "opt/venv/lib/python3.11/site-packages"
TREE = {
    f"{SITE}/vllm/_C.so": gpu_elf.gpu_library("sm_90", "compute_90"),
    f"{SITE}/vllm/_fa2.so": gpu_elf.gpu_library("sm_80", "compute_80"),
    f"{SITE}/vllm/_fp4.so": gpu_elf.gpu_library("sm_100f"),
    f"{SITE}/vllm-1.0.dist-info/RECORD": b"vllm/_C.so,,\nvllm/_fa2.so,,\nvllm/_fp4.so,,\n",
    f"{SITE}/b12x/k.py": b"@cute.kernel\ndef k(): pass\n",
    "usr/lib/libhost.so": gpu_elf.elf({".text": b"x"}),
    "usr/lib/libfft.so": gpu_elf.elf({".ldata": gpu_elf.container("sm_90", "lto_75")}),
    "usr/lib/libdev.a": gpu_elf.archive(a=gpu_elf.elf({"__nv_relfatbin": gpu_elf.container("sm_90")}, kind=1)),
}
ARCHES = ["sm90", "sm100", "sm120"]


@dataclass
class FakeTrials:
    """Containers in which the files of a folder are the image's, and our Python is theirs."""

    root: Path
    work: Path
    ends: int | None = None
    status: int | None = None
    answer: bytes | None = None
    made: list[Job] = field(default_factory=list)
    removed: int = 0

    def make(self, job: Job) -> str:
        self.made.append(job)
        for path, put in job.files.items():
            (self.work / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path.lstrip("/")).write_bytes(put.data or b"")
        return "container"

    def wait(self, container: str, limit: float) -> Ended:
        if self.status is not None:
            response = Response()
            response.status_code = self.status
            raise APIError("no such program", response=response)
        if self.ends is not None:
            return Ended(self.ends, "", "cause", 0.1)
        words = [word.replace(HOME, f"{self.work}{HOME}") for word in self.made[-1].argv]
        words[0], words[words.index("/")] = sys.executable, str(self.root)
        done = subprocess.run(words, capture_output=True, text=True)
        return Ended(done.returncode, done.stdout, done.stderr, 0.1)

    def read(self, container: str, path: str) -> dict[str, bytes]:
        return {Path(path).name: self.answer or (self.work / path.lstrip("/")).read_bytes()}

    def files(self, container: str) -> Iterator[bytes]:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for path in sorted(self.root.rglob("*")):
                tar.add(path, path.relative_to(self.root), recursive=False)
        data = out.getvalue()
        return (data[at : at + 4096] for at in range(0, len(data), 4096))

    def remove(self, container: str) -> None:
        self.removed += 1


@pytest.fixture
def image(tmp_path: Path) -> FakeTrials:
    root = tmp_path / "root"
    for name, data in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return FakeTrials(root, tmp_path / "work")


def inspected(image: FakeTrials, *, outside: bool = False) -> Answer:
    program = read_program(IMAGES)
    return inspect_image(image, Console(), "sha256:1", program, arches=ARCHES, outside=outside)  # type: ignore[arg-type]


def waiver(file: str, package: str | None = None) -> Waiver:
    return Waiver(check="cuda-code", file=file, package=package, reason="because", until="then")


def test_what_the_program_in_the_image_finds(image: FakeTrials) -> None:
    answer = inspected(image)
    assert (answer.files, answer.elf_files, answer.denied, answer.unreadable) == (len(TREE), 5, 0, ())
    assert {file.path: file.judged["sm90"].verdict for file in answer.holdings} == {
        f"/{SITE}/vllm/_C.so": "covered",
        f"/{SITE}/vllm/_fa2.so": "ptx-only",
        f"/{SITE}/vllm/_fp4.so": "missing",
        "/usr/lib/libfft.so": "covered",
        "/usr/lib/libdev.a": "link",
    }
    by_path = {file.path: file for file in answer.holdings}
    assert by_path[f"/{SITE}/vllm/_C.so"].packages == ("vllm",)
    assert [(code.where, code.arch) for code in by_path["/usr/lib/libfft.so"].code] == [
        (".ldata", "sm_90"),
        (".ldata", "lto_75"),
    ]
    assert runtime_text(answer) == "CuTe DSL (b12x 1)"
    job = image.made[0]
    assert (job.user, job.argv[0], image.removed) == ("0", "python3", 1)


def test_reading_from_outside_gives_the_same_and_starts_nothing(image: FakeTrials) -> None:
    inside = inspected(image)
    image.ends = 99
    assert inspected(image, outside=True) == inside
    assert image.made[1].argv == ("none",)
    assert image.removed == 2


def test_a_file_with_two_names_in_a_tar(image: FakeTrials) -> None:
    (image.root / "usr/lib/libfft.so.2").hardlink_to(image.root / "usr/lib/libfft.so")
    inside = inspected(image)
    assert {"/usr/lib/libfft.so", "/usr/lib/libfft.so.2"} <= {file.path for file in inside.holdings}
    assert inspected(image, outside=True) == inside


@pytest.mark.parametrize("how", [{"status": 404}, {"status": 400}, {"ends": 127}, {"ends": 126}, {"ends": 3}])
def test_an_image_without_a_fitting_python_is_read_from_outside(
    image: FakeTrials, how: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in how.items():
        setattr(image, name, value)
    assert len(inspected(image).holdings) == 5
    assert "no Python 3.8" in capsys.readouterr().err
    assert image.removed == 2


def test_other_failures_are_no_reason_to_look_elsewhere(image: FakeTrials) -> None:
    image.ends = 1
    with pytest.raises(GateFailed, match="exit 1") as failed:
        inspected(image)
    assert failed.value.tail == "cause"
    image.ends, image.status = None, 500
    with pytest.raises(APIError):
        inspected(image)
    image.status, image.answer = None, b'{"files": 1}'
    with pytest.raises(BadInput, match="no answer"):
        inspected(image)
    assert image.removed == 3


def test_a_stream_that_breaks_off_is_no_result(image: FakeTrials, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(container: str) -> Iterator[bytes]:
        yield bytes(1024)
        raise ConnectionError("the engine died")

    monkeypatch.setattr(image, "files", broken)
    with pytest.raises(ConnectionError):
        inspected(image, outside=True)


def test_the_matrix(image: FakeTrials) -> None:
    title, columns, rows = matrix(inspected(image), ARCHES, "sm90", [waiver("vllm/_fa*", "vllm")])
    assert title.endswith(f"/{SITE}/")
    assert columns == ["file", "90", "100", "120", "sm90"]
    assert [row[:4] for row in rows] == [
        ["vllm/_C.so", "e", "PTX", "PTX"],
        ["vllm/_fa2.so", "PTX", "PTX", "PTX"],
        ["vllm/_fp4.so", "-", "f", "-"],
        ["/usr/lib/libdev.a", "", "", ""],
        ["/usr/lib/libfft.so", "e", "-", "-"],
    ]
    assert rows[1][4] == "ptx-only; 1 fatbin: 1 ptx-only; waived: because"
    assert matrix(inspected(image), ARCHES, None, [])[2][4][4] == "in .ldata sm_90, lto_75"


def test_many_files_that_are_alike_are_one_line(image: FakeTrials) -> None:
    for number in range(30):
        (image.root / f"usr/lib/k{number}.cubin").write_bytes(gpu_elf.cubin("sm_100a"))
    (image.root / "usr/lib/k7.cubin").write_bytes(gpu_elf.cubin("sm_90a"))
    names = [row[0] for row in matrix(inspected(image), ARCHES, None, [])[2]]
    assert "/usr/lib/ (29 files, all alike)" in names
    assert "/usr/lib/k7.cubin" in names


def test_what_cannot_be_read_is_in_the_table_and_red(image: FakeTrials) -> None:
    (image.root / "usr/lib/broken.so").write_bytes(gpu_elf.gpu_library("sm_90")[:-70])
    answer = inspected(image)
    row = matrix(answer, ARCHES, "sm90", [])[2][-1]
    assert row[:4] == ["/usr/lib/broken.so", "?", "?", "?"]
    assert "cut off" in row[4]
    assert "/usr/lib/broken.so" in answer.red("sm90", [])
    assert "1 cannot be read" in summary(answer, None)


@pytest.mark.parametrize(
    ("file", "package", "red"),
    [
        ("vllm/_fa2.so", None, 1),
        ("vllm/*", None, 0),
        ("vllm/*", "vllm", 0),
        ("vllm/*", "torch", 2),
        ("_fa2.so", None, 2),
        (f"/{SITE}/vllm/*", None, 2),
    ],
)
def test_waivers_name_a_file_as_the_gate_does(image: FakeTrials, file: str, package: str | None, red: int) -> None:
    assert len(inspected(image).red("sm90", [waiver(file, package)])) == red


# The command


@pytest.fixture
def engine(image: FakeTrials, monkeypatch: pytest.MonkeyPatch) -> FakeTrials:
    """An engine whose one image is `image`."""

    @contextmanager
    def fake(*_: object) -> Iterator[FakeTrials]:
        yield image

    client = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(command, "ready_engine", lambda session: SimpleNamespace(client=lambda: client))
    monkeypatch.setattr(command, "trials", fake)
    monkeypatch.setattr(command, "find_base", lambda *_, **__: SimpleNamespace(id="sha256:1"))
    monkeypatch.chdir(IMAGES.parent)
    for name in ("ARCH", "RECIPE"):
        monkeypatch.delenv(name, raising=False)
    return image


def graft(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "some:image", *words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.usefixtures("engine")
def test_without_an_architecture_nothing_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = graft(capsys)
    assert (code, out) == (0, "5 files with GPU code, of 5 ELF files among 8 files\n")
    assert "CuTe DSL (b12x 1)" in err


@pytest.mark.usefixtures("engine")
def test_missing_code_exits_7_after_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = graft(capsys, "--arch", "sm90")
    assert code == 7
    assert out.endswith("sm90: 2 covered, 1 link, 1 missing, 1 ptx-only\n")
    assert f"2 files have no code that is sure to run on sm90: /{SITE}/vllm/_fa2.so" in err
    code, out, _ = graft(capsys, "--arch", "sm90", "--json")
    data: dict[str, Any] = json.loads(out)
    assert (code, data["image_id"], len(data["red"]), len(data["holdings"])) == (7, "sha256:1", 2, 5)


def test_code_for_all_files_exits_0(engine: FakeTrials, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("_fa2.so", "_fp4.so"):
        (engine.root / SITE / "vllm" / name).unlink()
    assert graft(capsys, "--arch", "sm90")[0] == 0


def test_a_recipe_gives_its_waivers(engine: FakeTrials, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("_fa2.so", "_fp4.so"):
        (engine.root / SITE / "vllm" / name).unlink()
    (engine.root / SITE / "vllm/_qutlass_C.abi3.so").write_bytes(gpu_elf.gpu_library("sm_100f"))
    (engine.root / SITE / "vllm-1.0.dist-info/RECORD").write_bytes(b"vllm/_qutlass_C.abi3.so,,\n")
    assert graft(capsys, "--arch", "sm90")[0] == 7
    assert graft(capsys, "--arch", "sm90", "--recipe", "glm-dsa")[0] == 0


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("words", [("--arch", "sm95"), ("--recipe", "none")])
def test_arguments_that_name_nothing(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert graft(capsys, *words)[0] == 2
