"""The scripts of the source and build stages, run for real: git composes, PEP 517 builds, make packs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "images" / "scripts"
MISMATCH = 5


def run(
    *argv: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    whole = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(env or {})}
    return subprocess.run([str(word) for word in argv], env=whole, cwd=cwd, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Upstream:
    """A repository with a base commit and heads that branch off it."""

    work: Path
    context: Path

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
        done = subprocess.run(["git", *who, *words], cwd=self.work, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str], on: str | None = None) -> str:
        if on is not None:
            self.git("checkout", "--quiet", "--detach", on)
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "x")
        commit = self.git("rev-parse", "HEAD")
        self.git("branch", "--force", f"keep-{commit[:12]}", commit)
        return commit

    def publish(self) -> None:
        """The context that the host would make of it."""
        shutil.rmtree(self.context / "repo.git", ignore_errors=True)
        self.git("clone", "--quiet", "--bare", str(self.work), str(self.context / "repo.git"))

    def checkout(self, target: Path, **env: str) -> subprocess.CompletedProcess[str]:
        return run("bash", SCRIPTS / "checkout-git.sh", self.context, target, env=env)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path / "work", tmp_path / "context")
    made.work.mkdir()
    made.context.mkdir()
    made.git("init", "--quiet", "-b", "main")
    return made


BASE = {"a.py": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "lib/b.py": "b\n"}


def files_of(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_commit_is_checked_out_and_its_history_stays_behind(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit(BASE)
    upstream.commit({"a.py": "later\n"})
    upstream.publish()
    done = upstream.checkout(tmp_path / "out", COMMIT=base)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out") == BASE
    assert {p.stat().st_mtime for p in (tmp_path / "out").rglob("*")} == {1577836800.0}


def test_heads_are_merged_in_order_and_the_tree_is_proven(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit(BASE)
    one = upstream.commit({"a.py": BASE["a.py"].replace("1\n", "one\n")}, on=base)
    two = upstream.commit({"a.py": BASE["a.py"].replace("9\n", "nine\n"), "c.py": "c\n"}, on=base)
    upstream.git("checkout", "--quiet", "--detach", base)
    upstream.git("merge", "--quiet", one, two, "-m", "x")
    tree = upstream.git("rev-parse", "HEAD^{tree}")
    upstream.publish()
    done = upstream.checkout(tmp_path / "out", COMMIT=base, HEADS=f"{one} {two}", TREE=tree)
    assert done.returncode == 0, done.stderr
    assert tree in done.stdout
    assert files_of(tmp_path / "out")["a.py"] == "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"
    again = upstream.checkout(tmp_path / "again", COMMIT=base, HEADS=f"{two} {one}", TREE=tree)
    assert again.returncode == 0, again.stderr
    wrong = upstream.checkout(tmp_path / "wrong", COMMIT=base, HEADS=one, TREE=tree)
    assert (wrong.returncode, f"wanted is {tree}" in wrong.stderr) == (MISMATCH, True)


def test_a_head_may_be_a_fetched_ref(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit(BASE)
    upstream.git("update-ref", "refs/graft/pull/31", upstream.commit({"c.py": "c\n"}, on=base))
    upstream.publish()
    subprocess.run(
        [
            "git",
            "--git-dir",
            upstream.context / "repo.git",
            "fetch",
            "-q",
            upstream.work,
            "refs/graft/pull/31:refs/graft/pull/31",
        ],
        check=True,
    )
    done = upstream.checkout(tmp_path / "out", COMMIT=base, HEADS="refs/graft/pull/31")
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out")["c.py"] == "c\n"


def test_heads_that_do_not_merge_are_an_error(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit(BASE)
    one = upstream.commit({"a.py": BASE["a.py"].replace("5\n", "five\n")}, on=base)
    two = upstream.commit({"a.py": BASE["a.py"].replace("5\n", "V\n")}, on=base)
    upstream.publish()
    done = upstream.checkout(tmp_path / "out", COMMIT=base, HEADS=f"{one} {two}")
    assert done.returncode == MISMATCH
    assert f"{two} does not merge onto what came before it" in done.stderr
    assert "a.py" in done.stderr


@pytest.mark.parametrize("what", ["COMMIT", "HEADS"])
def test_a_commit_that_is_not_there_is_named(upstream: Upstream, tmp_path: Path, what: str) -> None:
    base = upstream.commit(BASE)
    upstream.publish()
    done = upstream.checkout(tmp_path / "out", **{"COMMIT": base, what: "f" * 40})
    assert done.returncode == MISMATCH
    assert "f" * 40 in done.stderr


def test_a_tree_is_no_commit(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit(BASE)
    upstream.publish()
    done = upstream.checkout(tmp_path / "out", COMMIT=upstream.git("rev-parse", "HEAD^{tree}"))
    assert (done.returncode, "is no commit" in done.stderr) == (MISMATCH, True)


def test_an_object_under_another_name_is_not_believed(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit(BASE)
    upstream.publish()
    objects = upstream.context / "repo.git" / "objects"
    blob = upstream.git("rev-parse", f"{base}:lib/b.py")
    forged = subprocess.run(
        ["git", "--git-dir", upstream.context / "repo.git", "hash-object", "-w", "--stdin"],
        input="forged\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    place = objects / blob[:2] / blob[2:]
    place.chmod(0o644)
    shutil.copy(objects / forged[:2] / forged[2:], place)
    done = upstream.checkout(tmp_path / "out", COMMIT=base)
    assert done.returncode == MISMATCH
    assert "does not hold all of" in done.stderr
    assert not (tmp_path / "out" / "lib" / "b.py").exists()


def test_a_lost_patch_is_applied_by_its_hash_after_the_heads(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit(BASE)
    upstream.commit({"lib/b.py": "patched\n"}, on=base)
    patch = upstream.git("diff", base, "HEAD") + "\n"
    upstream.publish()
    folder = tmp_path / "patches"
    folder.mkdir()
    (folder / "x.patch").write_text(patch)
    digest = hashlib.sha256(patch.encode()).hexdigest()
    said = {"COMMIT": base, "PATCHES_DIR": str(folder)}
    done = upstream.checkout(tmp_path / "out", PATCHES=f"{digest}:x.patch", **said)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out")["lib/b.py"] == "patched\n"
    other = upstream.checkout(tmp_path / "other", PATCHES=f"{'0' * 64}:x.patch", **said)
    assert (other.returncode, f"has sha256 {digest}" in other.stderr) == (MISMATCH, True)
    gone = upstream.checkout(tmp_path / "gone", PATCHES=f"{digest}:y.patch", **said)
    assert (gone.returncode, "y.patch is not there" in gone.stderr) == (MISMATCH, True)
    twice = upstream.checkout(tmp_path / "twice", PATCHES=f"{digest}:x.patch {digest}:x.patch", **said)
    assert (twice.returncode, "x.patch does not apply" in twice.stderr) == (MISMATCH, True)


def test_submodules_are_what_the_commit_says_at_any_depth(upstream: Upstream, tmp_path: Path) -> None:
    def module(name: str, text: str) -> Upstream:
        made = Upstream(tmp_path / name, tmp_path / f"{name}-context")
        made.work.mkdir()
        made.context.mkdir()
        made.git("init", "--quiet", "-b", "main")
        made.commit({f"{name}.h": text})
        return made

    inner, outer = module("inner", "inner\n"), module("outer", "outer\n")
    outer.git("submodule", "add", "--quiet", str(inner.work), "deep/inner")
    outer.commit({})
    upstream.commit(BASE)
    upstream.git("submodule", "add", "--quiet", str(outer.work), "3rdparty/outer")
    base = upstream.commit({})
    upstream.publish()
    for made in (inner, outer):
        commit = made.git("rev-parse", "HEAD")
        made.git("clone", "--quiet", "--bare", str(made.work), str(upstream.context / "modules" / f"{commit}.git"))
    done = upstream.checkout(tmp_path / "out", COMMIT=base)
    assert done.returncode == 0, done.stderr
    found = files_of(tmp_path / "out")
    assert found["3rdparty/outer/outer.h"] == "outer\n"
    assert found["3rdparty/outer/deep/inner/inner.h"] == "inner\n"
    assert not list((tmp_path / "out").rglob(".git"))
    shutil.rmtree(upstream.context / "modules" / f"{inner.git('rev-parse', 'HEAD')}.git")
    lacking = upstream.checkout(tmp_path / "lacking", COMMIT=base)
    assert (lacking.returncode, "submodule deep/inner is" in lacking.stderr) == (MISMATCH, True)


def test_attributes_and_hooks_of_the_source_decide_nothing(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.commit({".gitattributes": "* text eol=crlf\n*.py filter=bad ident\n", "a.py": "$Id$\n1\n"})
    upstream.publish()
    hook = upstream.context / "repo.git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch /tmp/graft-hook-ran\n")
    hook.chmod(0o755)
    done = upstream.checkout(tmp_path / "out", COMMIT=base, GIT_DIR="/nonexistent", GIT_CONFIG_COUNT="bad")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/a.py").read_bytes() == b"$Id$\n1\n"
    assert not Path("/tmp/graft-hook-ran").exists()


def test_a_shallow_repository_is_enough_for_a_commit(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit(BASE)
    base = upstream.commit({"a.py": "x\n"})
    upstream.git(
        "clone", "--quiet", "--bare", "--depth=1", f"file://{upstream.work}", str(upstream.context / "repo.git")
    )
    done = upstream.checkout(tmp_path / "out", COMMIT=base)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out")["a.py"] == "x\n"


PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import os, zipfile
SAID = ("MAX_JOBS", "NVCC_THREADS", "PIP_NO_INDEX")
def build_wheel(directory, config_settings=None, metadata_directory=None):
    version = os.environ[VARIABLE]
    name = f"tiny-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        folder = f"tiny-{version}.dist-info"
        archive.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\\nName: tiny\\nVersion: {version}\\n")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{folder}/RECORD", "")
        archive.writestr("tiny.txt", " ".join(f"{k}={os.environ.get(k)}" for k in SAID))
    return name
"""


def build_python(tree: Path, out: Path, backend: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    tree.mkdir(exist_ok=True)
    (tree / "pyproject.toml").write_text(PYPROJECT)
    (tree / "backend.py").write_text(backend)
    given = {"UV": str(Path(sys.executable).parent / "uv"), "GRAFT_WATCH": str(tree.parent / "elsewhere")}
    return run(sys.executable, SCRIPTS / "build-python.py", tree, out, *words, env={**given, **env})


@pytest.mark.parametrize("variable", ["SETUPTOOLS_SCM_PRETEND_VERSION", "VLLM_VERSION_OVERRIDE"])
def test_a_wheel_by_the_projects_own_backend(tmp_path: Path, variable: str) -> None:
    backend = BACKEND.replace("VARIABLE", repr(variable))
    done = build_python(tmp_path / "tree", tmp_path / "out", backend, "tiny", "1.2+gabc", GRAFT_JOBS="3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "build-python: tiny-1.2+gabc-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / "out" / "tiny-1.2+gabc-py3-none-any.whl") as wheel:
        assert wheel.read("tiny.txt").decode() == "MAX_JOBS=3 NVCC_THREADS=1 PIP_NO_INDEX=1"


def test_a_wheel_of_another_version_is_an_error(tmp_path: Path) -> None:
    backend = BACKEND.replace("os.environ[VARIABLE]", "'7.0'")
    done = build_python(tmp_path / "tree", tmp_path / "out", backend, "tiny", "1.2")
    assert done.returncode == 1
    assert "built tiny-7.0-py3-none-any.whl, not tiny 1.2" in done.stderr


def test_a_backend_that_fails_fails_the_stage(tmp_path: Path) -> None:
    done = build_python(
        tmp_path / "tree", tmp_path / "out", "def build_wheel(*a, **k): raise SystemExit('no compiler')", "tiny", "1"
    )
    assert done.returncode != 0
    assert "no compiler" in done.stderr


def test_jobs_are_bound_by_memory(tmp_path: Path) -> None:
    backend = BACKEND.replace("VARIABLE", "'VLLM_VERSION_OVERRIDE'")
    done = build_python(tmp_path / "tree", tmp_path / "out", backend, "tiny", "1", GRAFT_JOB_GB="100000")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "out" / "tiny-1-py3-none-any.whl") as wheel:
        assert wheel.read("tiny.txt").decode().startswith("MAX_JOBS=1 ")


MAKEFILE = """
VERSION := 2.30.4
src.build:
\tmkdir -p $(BUILDDIR)/lib $(BUILDDIR)/include/nccl
\techo 'const char version[] = "NCCL version TOLD compiled with CUDA";' > $(BUILDDIR)/x.c
\tgcc -shared -fPIC -Wl,-soname,SONAME -o $(BUILDDIR)/lib/libnccl.so.$(VERSION) $(BUILDDIR)/x.c
\techo '$(NVCC_GENCODE) $(CUDA_HOME)' > $(BUILDDIR)/include/nccl.h
\techo deep > $(BUILDDIR)/include/nccl/net.h
"""
MADE = {
    "GRAFT_WATCH": "",
    "NVCC_GENCODE": "-gencode=arch=compute_120a,code=sm_120a",
    "CUDA_HOME": "/usr/local/cuda",
    "GRAFT_JOBS": "1",
}


def build_make(
    tmp_path: Path, *, told: str = "2.30.4", soname: str = "libnccl.so.2", version: str = "2.30.4", **env: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "tree").mkdir(exist_ok=True)
    (tmp_path / "tree" / "Makefile").write_text(MAKEFILE.replace("TOLD", told).replace("SONAME", soname))
    words = ("--distribution", "nvidia-nccl-cu13", "--version", version)
    script = SCRIPTS / "build-make.py"
    return run(sys.executable, script, tmp_path / "tree", tmp_path / "out", *words, env={**MADE, **env})


def test_nccl_is_packed_as_the_wheel_it_stands_in_for(tmp_path: Path) -> None:
    done = build_make(tmp_path)
    assert done.returncode == 0, done.stderr
    wheel = tmp_path / "out" / "nvidia_nccl_cu13-2.30.4-py3-none-linux_x86_64.whl"
    assert done.stdout.strip() == str(wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("nvidia/nccl/include/nccl.h").decode().split() == [MADE["NVCC_GENCODE"], MADE["CUDA_HOME"]]
        record = archive.read("nvidia_nccl_cu13-2.30.4.dist-info/RECORD").decode()
    assert {"nvidia/nccl/lib/libnccl.so.2", "nvidia/nccl/include/nccl/net.h"} < set(names)
    assert sorted(line.split(",")[0] for line in record.splitlines()) == sorted(names)
    first = wheel.read_bytes()
    assert build_make(tmp_path).returncode == 0
    assert wheel.read_bytes() == first


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"version": "2.31.2"}, "the tree built ['libnccl.so.2.30.4'], not libnccl.so.2.31.2"),
        ({"told": "2.29.7"}, "does not say NCCL version 2.30.4"),
        ({"soname": "libnccl.so.3"}, "does not have the soname libnccl.so.2"),
        ({"NVCC_GENCODE": ""}, "one architecture in NVCC_GENCODE"),
        (
            {"NVCC_GENCODE": "-gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_120,code=sm_120"},
            "one architecture",
        ),
    ],
)
def test_another_library_than_was_asked_for_is_an_error(tmp_path: Path, facts: dict[str, str], says: str) -> None:
    done = build_make(tmp_path, **facts)
    assert done.returncode == 1
    assert says in done.stderr
    assert not list((tmp_path / "out").glob("*.whl"))


def test_an_archive_is_unpacked_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "math-1").mkdir()
    (tmp_path / "math-1" / "a.h").write_text("a\n")
    (tmp_path / "math-1" / "a.h").chmod(0o600)
    archive = tmp_path / "math.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "math-1", "math-1")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    done = run("bash", SCRIPTS / "unpack-archive.sh", archive, digest, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out") == {"a.h": "a\n"}
    assert (tmp_path / "out" / "a.h").stat().st_mode & 0o777 == 0o644
    wrong = run("bash", SCRIPTS / "unpack-archive.sh", archive, "0" * 64, tmp_path / "wrong")
    assert (wrong.returncode, f"is {digest}, wanted is" in wrong.stderr) == (1, True)
    assert not (tmp_path / "wrong").exists()


def test_debian_packages_have_the_versions_that_were_asked_for(tmp_path: Path) -> None:
    answers = tmp_path / "dpkg-query"
    answers.write_text('#!/bin/sh\nfor last; do :; done\ntest "$last" = libx || exit 1\nprintf 13.4.1.2-1\n')
    answers.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert run("sh", SCRIPTS / "check-debs.sh", "libx=13.4.1.2-1", env=env).returncode == 0
    other = run("sh", SCRIPTS / "check-debs.sh", "libx=13.4.1.3-1", env=env)
    assert (other.returncode, other.stderr) == (1, "check-debs: libx is 13.4.1.2-1, wanted is 13.4.1.3-1\n")
    assert run("sh", SCRIPTS / "check-debs.sh", "liby=1", env=env).returncode != 0


@pytest.mark.parametrize("script", ["checkout-git.sh", "unpack-tree.sh", "unpack-archive.sh", "venv-of-image.sh"])
def test_a_script_is_bash_that_parses(script: str) -> None:
    assert run("bash", "-n", SCRIPTS / script).returncode == 0


def test_a_venv_of_an_unknown_kind_is_refused() -> None:
    done = run("bash", SCRIPTS / "venv-of-image.sh", "mine", "python3.12", "/usr/local/cuda")
    assert (done.returncode, done.stderr) == (2, "venv-of-image: unknown mode mine\n")
