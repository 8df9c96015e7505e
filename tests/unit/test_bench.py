"""What the benchmark measures is what it says: the patches really meet their files."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import gpu_elf
import pytest

BENCH = Path(__file__).parents[1] / "bench"


def load(name: str):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scale_of_lint_has_recipes_that_are_sound() -> None:
    scale = load("lint_scale")
    measured = scale.measure(recipes=4)
    assert (measured.recipes, measured.images, measured.errors) == (4, 6, 0)
    assert measured.seconds > 0
    made = scale.recipe(1, scale.load_project(scale.ROOT / "build.yaml"))
    assert len(made["components"]) == scale.COMPONENTS == 20
    assert scale.RECIPES == 1000


def test_the_scale_of_judging_has_patches_that_fit_and_some_that_do_not() -> None:
    scale = load("judge_scale")
    assert scale.run(40, 20, False).verdicts == {"exact": 18, "conflict": 2}
    assert scale.run(40, 20, True).verdicts == {"exact": 18, "conflict": 2}
    measured = scale.measure(files=20, patches=10)
    assert (measured.files, measured.patches) == (20, 10)
    assert measured.seconds > 0


CUOBJDUMP = """#!/bin/sh
# cuobjdump in a few lines: for each name of a file, what is written beside it; for what it is shown, fixed lines.
case "$*" in
  *packed.fatbin)
    printf 'Fatbin elf code:\\n====\\narch = sm_80\\nFatbin nvvm code:\\narch = sm_75\\n'
    printf 'Fatbin elf code:\\narch = sm_90a\\n' ;;
  *bare.cubin) echo 'ELF file    1: bare.sm_120.cubin' ;;
  *) for file; do :; done; cat "$(dirname "$0")/says/$(basename "$file")" 2>/dev/null || exit 255 ;;
esac
"""


def test_the_census_is_compared_with_cuobjdump_entry_by_entry(tmp_path: Path) -> None:
    compared = load("gpu_census")
    program, says, image = tmp_path / "cuobjdump", tmp_path / "says", tmp_path / "image"
    says.mkdir()
    image.mkdir()
    program.write_text(CUOBJDUMP)
    program.chmod(0o755)
    lines = "Fatbin elf code:\narch = sm_100f\nhost = linux\nFatbin ptx code:\narch = sm_90\n"
    (image / "libgpu.so").write_bytes(gpu_elf.gpu_library("sm_100f", "compute_90"))
    (says / "libgpu.so").write_text(lines)
    data = gpu_elf.container("sm_80", "lto_75") + gpu_elf.container("sm_90a") + gpu_elf.cubin("sm_120")
    (image / "libfft.so").write_bytes(gpu_elf.elf({".ldata": data}))
    (image / "libhost.so").write_bytes(gpu_elf.elf({".text": b"x"}))
    (image / "readme").write_bytes(b"text")
    found = compared.measure(image, program)
    assert (found.files, found.with_code, found.entries, found.hidden, found.differences) == (3, 1, 2, 4, {})
    assert compared.measure_apart(image, program).differences == {}
    (says / "libgpu.so").write_text(lines.replace("100f", "100"))
    (image / "libfft.so").write_bytes(gpu_elf.elf({".ldata": gpu_elf.container("sm_75")}))
    found = compared.measure(image, program)
    assert found.differences == {
        "/libgpu.so": ["census only: [(('cubin', '100f'), 1)]", "cuobjdump only: [(('cubin', '100'), 1)]"],
        "/libfft.so (hidden)": [
            "census only: [(('cubin', '75'), 1)]",
            "cuobjdump only: [(('cubin', '80'), 1), (('cubin', '90a'), 1), (('lto', '75'), 1)]",
        ],
    }
    assert compared.measure_apart(image, program).differences == found.differences


def test_the_files_of_an_image_are_unpacked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = load("gpu_census")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("usr/lib/libgpu.so")
        data = gpu_elf.gpu_library("sm_90")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("usr/lib/link.so")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    removed = []
    api = SimpleNamespace(
        create_container=lambda image, command: {"Id": "made"},
        export=lambda made: (out.getvalue()[at : at + 700] for at in range(0, len(out.getvalue()), 700)),
        remove_container=lambda made, force: removed.append(made),
    )
    monkeypatch.setattr(compared, "measure_apart", lambda root, program: compared.census.take(root))
    found = compared.measure_image(SimpleNamespace(api=api), "sha256:1", tmp_path, tmp_path)
    assert [holding.path for holding in found.holdings] == ["/usr/lib/libgpu.so"]
    assert removed == ["made"]
    assert list(tmp_path.iterdir()) == []


LOG = """#7 [build-nccl 1/2] RUN build-make
#8 [build-flashinfer 2/2] RUN modules
#9 [build-lmcache 1/1] RUN --mount=type=cache build-python
#9 CACHED
#8 0.5 graft-measured: {"seconds": 100.5}
#10 [built-flashinfer 1/1] COPY --from=build-flashinfer /out /
#11 [build-lmcache 1/2] COPY . .
"""


def test_compilers_that_ran_are_told_from_steps_of_the_engine_s_cache() -> None:
    bench = load("components")
    assert bench.compilers(LOG) == ["flashinfer", "nccl"]
    assert bench.compilers(LOG.replace("#9 CACHED", "#9 DONE 3.0s")) == ["flashinfer", "lmcache", "nccl"]
    assert bench.compilers("") == []


def test_components_built_at_once_are_counted_as_one() -> None:
    bench = load("components")
    facts = {"seconds": 5.0, "misses": 2, "hits": 1, "peak_gb": 0.5}
    both = bench.of([facts, {**facts, "seconds": 9.0, "peak_gb": 0.2}], 10.0)
    assert both == bench.Component(9.0, 10.0, 4, 2, 0.5)
    assert both.objects == "4 of 6 objects compiled"
    assert bench.of([], 0.1) == bench.Component(0.0, 0.1, 0, 0, 0.0)
