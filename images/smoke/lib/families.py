"""Whose symbol it is: which library should give an undefined symbol, by the way its name is made."""

from __future__ import annotations

import re

from lib.dynamic import Need

#: Libraries that come with the driver of the host, and never with the image.
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")

#: What the functions of a module of tvm_ffi are called, as those that FlashInfer compiles.
TVM_MODULE = "__tvm_ffi_"
#: What such a module needs and does not name: tvm_ffi opens it for everybody before it loads one (tvm_ffi/__init__.py).
TVM_LIBRARY = "tvm_ffi/lib/libtvm_ffi.so"

# The first that fits. A mangled name of C++ starts with the lengths and names of its namespaces: _ZN3c104cuda... is
# c10::cuda::..., and _ZN2at..., _ZN5torch... likewise; St, Sa, Ss, ... abbreviate names of namespace std (Itanium ABI).
FAMILIES = tuple(
    (re.compile(pattern), library)
    for pattern, library in (
        (r"cu[A-Z]", "libcuda.so.1"),
        (r"nvml[A-Z]", "libnvidia-ml.so.1"),
        (r"cuda[A-Z]|__cuda", "libcudart.so"),
        (r"cublasLt", "libcublasLt.so"),
        (r"cublas", "libcublas.so"),
        (r"cudnn", "libcudnn.so"),
        (r"cusparseLt", "libcusparseLt.so"),
        (r"cusparse", "libcusparse.so"),
        (r"cusolver", "libcusolver.so"),
        (r"cufft", "libcufft.so"),
        (r"curand", "libcurand.so"),
        (r"nvrtc", "libnvrtc.so"),
        (r"p?nccl", "libnccl.so"),
        (r"nvshmem", "libnvshmem_host.so"),
        (r"_ZT?[A-Z]*[rVK]*3c104cuda|_Z\d+\w*3c104cuda", "libc10_cuda.so"),
        (r"_ZT?[A-Z]*[rVK]*3c10", "libc10.so"),
        (r"_ZT?[A-Z]*[rVK]*(2at|5torch|6caffe2)|aoti_torch_|torch_", "libtorch_cpu.so"),
        (r"THP|_Z\d+THP", "libtorch_python.so"),
        (r"_?Py[A-Z_]", "python"),
        (r"TVMFFI", "libtvm_ffi.so"),
        (r"_ZT?[A-Z]*[rVK]*S[tabsiod]|_Zn[wa]|_Zd[la]|__cxa_|__gxx_|_ZTV\w*__cxxabiv1", "libstdc++.so.6"),
    )
)


def owner(need: Need) -> str | None:
    """The library that should give the symbol: the one that its version is of, or the one of its family; or nobody."""
    if need.file is not None:
        return need.file
    return next((library for pattern, library in FAMILIES if pattern.match(need.name)), None)
