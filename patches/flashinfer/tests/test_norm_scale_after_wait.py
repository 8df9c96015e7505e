"""Where the quantized RMSNorm kernels load their scale, in the PTX that the toolkit's nvcc makes of the headers.

GRAFT_ARCH_NVCC names the architecture (sm_90a when unset).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Position of `scale` among the parameters of each kernel, and of the probe that wraps it.
SCALE_OF_KERNEL = {"RMSNormQuantKernel": 7, "FusedAddRMSNormQuantKernel": 9}
SCALE_OF_PROBE = {"probe_RMSNormQuantKernel": 4, "probe_FusedAddRMSNormQuantKernel": 5}

HEAD = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>
#include <numeric>

#include "flashinfer/trtllm/common/cudaTypeUtils.cuh"
#include "flashinfer/trtllm/common/cudaUtils.h"
#include "flashinfer/trtllm/common/reduceKernelUtils.cuh"
#include "flashinfer/utils.cuh"
using In = __nv_bfloat16;
using Out = __nv_fp8_e4m3;
"""

KERNELS = (
    HEAD
    + r"""
#include "flashinfer/norm.cuh"
template __global__ void flashinfer::norm::RMSNormQuantKernel<8, In, Out>(
    In* __restrict__, In* __restrict__, Out* __restrict__, const uint32_t, const uint32_t, const uint32_t, float,
    float*, float);
template __global__ void flashinfer::norm::FusedAddRMSNormQuantKernel<8, In, Out>(
    In* __restrict__, In* __restrict__, In* __restrict__, Out* __restrict__, const uint32_t, const uint32_t,
    const uint32_t, const uint32_t, float, float*, float);
"""
)

# The kernels become device functions, so that a probe can read the scale before them: a load that the compiler may move
# above the wait, or replace by an earlier value, would be merged with the probe's. (The nvcc of CUDA 13.0 orders any
# volatile asm like this, with a clobber or without; the clobber is what makes it a promise of the language.)
PROBES = (
    HEAD
    + r"""
#undef __global__
#define __global__ __device__ __forceinline__
#include "flashinfer/norm.cuh"
#undef __global__
#define __global__ __attribute__((global))
using namespace flashinfer::norm;

extern "C" __global__ void probe_RMSNormQuantKernel(In* input, In* weight, Out* output, uint32_t d, float* scale,
                                                    float* seen) {
  const float early = scale[0];
  RMSNormQuantKernel<8, In, Out>(input, weight, output, d, d, d, 0.f, scale, 1e-5f);
  *seen = early;
}
extern "C" __global__ void probe_FusedAddRMSNormQuantKernel(In* input, In* residual, In* weight, Out* output,
                                                            uint32_t d, float* scale, float* seen) {
  const float early = scale[0];
  FusedAddRMSNormQuantKernel<8, In, Out>(input, residual, weight, output, d, d, d, d, 0.f, scale, 1e-5f);
  *seen = early;
}
"""
)


def installed(package: str) -> Path:
    """Folder of an installed package, found without importing it (flashinfer imports torch)."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{package} is not installed for {sys.executable}")
    return Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def ptx_of(source: str) -> str:
    """PTX that nvcc makes of `source` for the architecture under test."""
    toolkit = Path(os.environ.get("CUDA_HOME") or installed("nvidia") / "cu13")
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder, "unit.cu")
        unit.write_text(source)
        arch = os.environ.get("GRAFT_ARCH_NVCC", "sm_90a")
        include = installed("flashinfer") / "data" / "include"
        flags = ["-std=c++17", "-O3", "-ptx", f"-arch={arch}", f"-I{include}", "-o", unit.with_suffix(".ptx")]
        done = subprocess.run(
            [toolkit / "bin" / "nvcc", *flags, unit],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"nvcc failed:\n{done.stderr[-4000:]}")
        return unit.with_suffix(".ptx").read_text()


def entry(ptx: str, kernel: str) -> list[str]:
    """Instructions of one kernel, whose name may be mangled (length, then name)."""
    mangled = kernel if kernel.startswith("probe_") else rf"\w*{len(kernel)}{kernel}\w*"
    found = re.findall(rf"\.entry {mangled}\(.*?\n\{{\n(.*?)\n\}}\n", ptx, re.S)
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} entries {kernel} in the PTX, expected one")
    return [line.strip() for line in found[0].splitlines()]


def the_wait(code: list[str]) -> int:
    at = [i for i, line in enumerate(code) if line.startswith("griddepcontrol.wait")]
    assert len(at) == 1, f"{len(at)} griddepcontrol.wait, expected one"
    return at[0]


def loads_of_parameter(code: list[str], number: int) -> list[int]:
    """Where the kernel loads from global memory through its pointer parameter `number`."""
    pointers: set[str] = set()
    loads: list[int] = []
    for i, line in enumerate(code):
        if made := re.match(rf"ld\.param\.\w+\s+(%\w+), \[\w+_param_{number}\];", line):
            pointers.add(made[1])
        elif (moved := re.match(r"(?:cvta\.to\.global|mov)\.\w+\s+(%\w+), (%\w+);", line)) and moved[2] in pointers:
            pointers.add(moved[1])
        elif (load := re.match(r"ld(?:\.\w+)*\s+\S+, \[(%\w+)\];", line)) and load[1] in pointers:
            loads.append(i)
    return loads


def test_the_scale_is_loaded_after_the_wait() -> None:
    for kernel, number in SCALE_OF_KERNEL.items():
        code = entry(ptx_of(KERNELS), kernel)
        loads, wait = loads_of_parameter(code, number), the_wait(code)
        if not loads:
            raise RuntimeError(f"no load of the scale found in the PTX of {kernel}")
        assert min(loads) > wait, f"{kernel} loads its scale before griddepcontrol.wait"


def test_no_global_load_comes_before_the_wait() -> None:
    for kernel in SCALE_OF_KERNEL:
        code = entry(ptx_of(KERNELS), kernel)
        early = [line for line in code[: the_wait(code)] if line.startswith("ld.global")]
        assert not early, f"{kernel} reads memory before griddepcontrol.wait: {early}"


def test_a_scale_read_earlier_is_read_again_after_the_wait() -> None:
    for probe, number in SCALE_OF_PROBE.items():
        code = entry(ptx_of(PROBES), probe)
        loads, wait = loads_of_parameter(code, number), the_wait(code)
        if not loads:
            raise RuntimeError(f"no load of the scale found in the PTX of {probe}")
        assert max(loads) > wait, f"{probe}: the scale read before griddepcontrol.wait was used after it"
