"""What a build stage refuses: downloads, files elsewhere, wheels for something else; and how it says the cause."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from gitwork import Work, work
from test_source_scripts import MISMATCH, SCRIPTS, build_make, build_python, files_of, run

from graft.gitstore import keep

WHEEL = """
import os, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "NAME"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        folder = "-".join(name.split("-")[:2]) + ".dist-info"
        archive.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\nREQUIRES")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{folder}/RECORD", "")
    return name
"""


def backend(name: str = "tiny-1-py3-none-any.whl", requires: str = "") -> str:
    return WHEEL.replace("NAME", name).replace("REQUIRES", requires)


def build(tmp_path: Path, text: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return build_python(tmp_path / "tree", tmp_path / "out", text, "tiny", "1", *words, **env)


def last(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_a_download_ends_the_build_at_once_and_is_named(tmp_path: Path) -> None:
    text = (
        "import time, urllib.request\n"
        "try:\n    urllib.request.urlopen('https://files.invalid/cutlass.tar.gz')\n"
        "except OSError:\n    time.sleep(60)\n" + backend()
    )
    assert last(build(tmp_path, text)).startswith("build-python: it wanted to download files.invalid, ")
    assert "`sources`" in last(build(tmp_path, text))


def test_a_clone_names_its_whole_address(tmp_path: Path) -> None:
    text = "import subprocess\nsubprocess.run('git clone https://git.invalid/x/cutlass.git', shell=True)\n" + backend()
    assert "it wanted to download https://git.invalid/x/cutlass.git" in last(build(tmp_path, text))


def test_a_file_outside_of_the_output_is_named(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    text = f"open({str(tmp_path / 'elsewhere' / 'surprise')!r}, 'w').close()\n" + backend()
    assert last(build(tmp_path, text)) == (
        f"build-python: it wrote outside of its output: {tmp_path / 'elsewhere' / 'surprise'}"
    )


def test_a_build_that_ends_well_without_a_wheel(tmp_path: Path) -> None:
    fake = tmp_path / "uv"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    assert last(build(tmp_path, "", UV=str(fake))) == "build-python: the tree built no wheel, not tiny 1"


@pytest.mark.parametrize(
    ("name", "requires", "words", "says"),
    [
        ("tiny-1-cp39-cp39-linux_x86_64.whl", "", (), "is for another Python or platform"),
        ("tiny-1-py3-none-win_amd64.whl", "", (), "is for another Python or platform"),
        ("tiny-2-py3-none-any.whl", "", (), "the tree built tiny-2-py3-none-any.whl, not tiny 1"),
        ("tiny-1-py3-none-any.whl", r"Requires-Dist: packaging==1.0\n", (), "is for packaging==1.0, and the image has"),
        (
            "tiny-1-py3-none-any.whl",
            r"Requires-Dist: nothing-so\n",
            ("--needs", "six"),
            "needs nothing-so, which the lock",
        ),
    ],
)
def test_a_wheel_for_something_else(
    tmp_path: Path, name: str, requires: str, words: tuple[str, ...], says: str
) -> None:
    assert says in last(build(tmp_path, backend(name, requires), *words))


def test_what_the_lock_has_is_enough(tmp_path: Path) -> None:
    requires = r"Requires-Dist: nothing-so>=2\nRequires-Dist: other; extra == 'x'\nRequires-Dist: packaging\n"
    done = build(tmp_path, backend(requires=requires), "--needs", "nothing-so")
    assert done.returncode == 0, done.stderr


def test_a_line_that_means_a_part_is_missing(tmp_path: Path) -> None:
    text = "print('Not building Marlin kernels as no compatible archs found')\n" + backend()
    assert build(tmp_path, text).returncode == 0
    said = last(build(tmp_path, text, "--refuse", "Not building "))
    assert said.endswith("does not name it: Not building Marlin kernels as no compatible archs found")
    assert build(tmp_path, text, "--refuse", "Not building ", "--accept", "Marlin kernels").returncode == 0
    assert build(tmp_path, text, "--refuse", "Not building ", "--accept", "Marlin kernel").returncode == 1


def test_make_says_what_the_compiler_said(tmp_path: Path) -> None:
    done = build_make(tmp_path, soname="x'broken")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("build-make: it ended with 2: ")


@pytest.fixture(scope="module")
def buildrun() -> ModuleType:
    spec = importlib.util.spec_from_file_location("buildrun", SCRIPTS / "buildrun.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["buildrun"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "is_cause"),
    [
        ('/src/x/norm.cu(12): error: identifier "foo" is undefined', True),
        ("answer.c:2:10: fatal error: number.h: No such file or directory", True),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_80a'", True),
        ("ptxas fatal   : Unresolved extern function 'f'", True),
        ("CMake Error at CMakeLists.txt:12 (message):", True),
        ("ModuleNotFoundError: No module named 'torch'", True),
        ("/usr/bin/ld: cannot find -lcudart", True),
        ("error[E0425]: cannot find value `x` in this scope", True),
        ("building 'answer' extension with errors allowed", False),
        ("-- Performing Test HAVE_ERROR", False),
    ],
)
def test_the_cause_is_found_among_many_lines(buildrun: ModuleType, line: str, is_cause: bool) -> None:
    lines = ["creating build", *["gcc -c x.c"] * 50, line, *["gcc -c y.c"] * 50, "it goes on"]
    assert (buildrun.cause(lines) == line.strip()) == is_cause


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("fatal: unable to access 'https://github.com/NVIDIA/cutlass.git/': Could not resolve host: github.com",
         "https://github.com/NVIDIA/cutlass.git/"),
        ("requests.exceptions.ProxyError: HTTPSConnectionPool(host='pypi.invalid', port=443): Max retries exceeded",
         "pypi.invalid"),
        ("ERROR: No matching distribution found for pybind11>=3", "pybind11>=3"),
        ("error: downloading 'https://x.invalid/a.tgz' failed", "https://x.invalid/a.tgz"),
    ],
)  # fmt: skip
def test_what_it_wanted_to_download(buildrun: ModuleType, line: str, wanted: str) -> None:
    assert buildrun._why(["x", line, "y"], 1, []).startswith(f"it wanted to download {wanted}, ")


def test_memory_is_recognised(buildrun: ModuleType) -> None:
    assert "out of memory" in buildrun._why(["g++: fatal error: Killed signal terminated program cc1plus"], 1, [])
    assert "out of memory" in buildrun._why([], -9, [])
    assert "out of memory" not in buildrun._why(["x.c:1:1: error: y"], 1, [])


def test_jobs_are_what_the_cores_and_the_free_memory_hold(
    buildrun: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildrun.os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(buildrun.Path, "read_text", lambda path: "MemAvailable:   33554432 kB\n")
    assert buildrun.jobs() == 8
    monkeypatch.setenv("GRAFT_JOB_GB", "16")
    assert buildrun.jobs() == 2
    monkeypatch.setenv("GRAFT_JOB_GB", "64")
    assert buildrun.jobs() == 1
    monkeypatch.setenv("GRAFT_JOBS", "5")
    assert buildrun.jobs() == 5


def test_a_build_says_what_it_took(tmp_path: Path) -> None:
    text = "hold = bytearray(300 << 20)\n" + backend()
    done = build(tmp_path, text, GRAFT_JOBS="3")
    said = [line for line in done.stderr.splitlines() if line.startswith("graft-measured: ")]
    assert len(said) == 1
    facts = json.loads(said[0].removeprefix("graft-measured: "))
    assert facts["jobs"] == 3
    assert 0.29 < facts["peak_gb"] < 1
    assert facts["seconds"] > 0


STATSLOG = """\
# /src/x/a.cu
direct_cache_miss
preprocessed_cache_hit
local_storage_hit
# /src/x/b.cu
direct_cache_hit
local_storage_miss
remote_storage_hit
remote_storage_read_hit
remote_storage_read_hit
# /src/x/c.cu
direct_cache_miss
cache_miss
local_storage_miss
remote_storage_hit
# /src/x/d.cu
unsupported_compiler_option
# a.o
called_for_link
"""


def test_objects_are_counted_by_what_ccache_did(buildrun: ModuleType) -> None:
    assert buildrun.counted(STATSLOG) == {"hits": 2, "misses": 1, "uncached": 1, "shared": 1}
    assert buildrun.counted("") == {"hits": 0, "misses": 0, "uncached": 0, "shared": 0}


def fake(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


def test_every_compiler_goes_through_ccache(
    buildrun: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildrun, "COMPILERS", tmp_path / "compilers")
    bin_ = tmp_path / "bin"
    fake(bin_, "ccache", 'printf "%s\\n" "${0##*/}" "$@" "$(command -v g++)"')
    for name in ("gcc", "g++"):
        fake(bin_, name, f"echo {name}-answer")
    env = {"PATH": f"{bin_}:/usr/bin:/bin", "CCACHE_DIR": "/ccache", "CUDA_HOME": str(tmp_path)}
    found = buildrun.through_ccache(env, tmp_path / "tree", tmp_path / "stats")
    run = partial(subprocess.run, env=found, capture_output=True, text=True, check=True)
    assert run(["bash", "-c", "g++ -c x.cc"]).stdout.split() == ["g++", "-c", "x.cc", str(tmp_path / "compilers/g++")]
    # nvcc finds the real compiler of the host, and ccache the options that it knows.
    words = [
        *found["PYTORCH_NVCC"].split(),
        "--generate-dependencies-with-compile",
        "--dependency-output",
        "x.d",
        "a b",
    ]
    said = run(words).stdout.splitlines()
    assert said == ["ccache", f"{tmp_path}/bin/nvcc", "-MD", "-MF", "x.d", "a b", f"{bin_}/g++"]
    assert found["CMAKE_CUDA_COMPILER_LAUNCHER"] == str(tmp_path / "compilers/launch")
    assert found["CCACHE_BASEDIR"] == str(tmp_path / "tree")


def test_entries_are_shared_only_where_the_build_is_told_so(
    buildrun: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildrun, "NEW", tmp_path / "new")
    monkeypatch.delenv("GRAFT_CCACHE_SHARED", raising=False)
    env = {"PATH": "/usr/bin:/bin"}
    assert not [name for name in buildrun.ccache_settings(env, tmp_path) if "REMOTE" in name or "RESHARE" in name]
    monkeypatch.setenv("GRAFT_CCACHE_SHARED", "yes")
    told = buildrun.ccache_settings(env, tmp_path)
    assert told["CCACHE_REMOTE_STORAGE"] == f"file:/ccache-shared|read-only file:{tmp_path}/new"
    assert told["CCACHE_RESHARE"] == "1"


@pytest.mark.parametrize("lacking", ["CCACHE_DIR", "ccache"])
def test_without_ccache_compilers_are_called_as_ever(buildrun: ModuleType, tmp_path: Path, lacking: str) -> None:
    env = {"PATH": str(tmp_path), "CCACHE_DIR": "/ccache"}
    if lacking == "CCACHE_DIR":
        fake(tmp_path, "ccache", "")
        env.pop("CCACHE_DIR")
    assert buildrun.through_ccache(env, tmp_path, tmp_path / "stats") == env


def test_a_compiler_is_what_its_programs_are(buildrun: ModuleType, tmp_path: Path) -> None:
    bin_, env = tmp_path / "bin", {"PATH": f"{tmp_path}/bin:/bin", "CUDA_HOME": str(tmp_path / "cuda")}
    fake(bin_, "g++", f"echo {tmp_path}/cc1plus")
    (tmp_path / "cc1plus").write_text("1")
    before = buildrun.compiler_id(env)
    assert buildrun.compiler_id(env) == before
    (tmp_path / "cc1plus").write_text("2")
    second = buildrun.compiler_id(env)
    fake(tmp_path / "cuda/nvvm/bin", "cicc", "")
    assert len({before, second, buildrun.compiler_id(env)}) == 3


def test_a_module_that_is_not_there_is_a_build_requirement(buildrun: ModuleType) -> None:
    line = "ModuleNotFoundError: No module named 'grpc_tools.protoc'"
    assert buildrun._why(["x", line, "y"], 1, []) == (
        "it wanted to import grpc_tools, which is not there: name its distribution in `build_requires`"
    )
    for other in ("RuntimeError: no compiler", "x.c:1:1: error: y"):
        assert "build_requires" not in buildrun._why([line, other], 1, [])


# The tree


@pytest.fixture
def tree(tmp_path: Path) -> Work:
    made = work(tmp_path, "pkg")
    (made.folder / "link").symlink_to("a.c")
    made.commit({"a.c": "1\n2\n3\n", "sub/b.c": "b\n", ".gitignore": "*.c\n"})
    made.commit({"a.c": "1\ntwo\n3\n"})
    return made


def packed(tree: Work, tmp_path: Path) -> tuple[Path, str]:
    file = tmp_path / "x.tar"
    tree.git("archive", "--prefix=top/", f"--output={file}", "HEAD~1")
    made = keep(tmp_path / "store", file, "pkg")
    return made.file, made.tree


def unpack(file: Path, into: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run("bash", SCRIPTS / "unpack-tree.sh", file, into, env=env)


def test_a_tree_is_unpacked_and_proven(tree: Work, tmp_path: Path) -> None:
    file, known = packed(tree, tmp_path)
    assert known == tree.git("rev-parse", "HEAD~1^{tree}")
    done = unpack(file, tmp_path / "out", TREE=known, GIT_DIR="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out")["sub/b.c"] == "b\n"
    assert (tmp_path / "out" / "link").is_symlink()
    assert {p.lstat().st_mtime for p in (tmp_path / "out").rglob("*")} == {1577836800.0}
    wrong = unpack(file, tmp_path / "wrong", TREE="e" * 40)
    assert (wrong.returncode, f"the pristine tree is {known}" in wrong.stderr) == (MISMATCH, True)


def test_patches_of_a_tree_are_proven_too(tree: Work, tmp_path: Path) -> None:
    file, known = packed(tree, tmp_path)
    patches = tmp_path / "patches"
    patches.mkdir()
    (patches / "two.patch").write_text(tree.git("diff", "HEAD~1", "HEAD") + "\n")
    (patches / "series").write_text("two.patch\n")
    result = tree.git("rev-parse", "HEAD^{tree}")
    env = {"TREE": known, "PATCHES": str(patches)}
    done = unpack(file, tmp_path / "out", RESULT=result, **env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "a.c").read_text() == "1\ntwo\n3\n"
    other = unpack(file, tmp_path / "other", RESULT="e" * 40, **env)
    assert (other.returncode, f"the tree is {result}" in other.stderr) == (MISMATCH, True)
    (patches / "series").write_text("two.patch\ntwo.patch\n")
    twice = unpack(file, tmp_path / "twice", RESULT=result, **env)
    assert (twice.returncode, "two.patch does not apply" in twice.stderr) == (MISMATCH, True)
    (patches / "series").write_text("")
    none = unpack(file, tmp_path / "none", RESULT=known, **env)
    assert (none.returncode, "names no patch" in none.stderr) == (MISMATCH, True)
