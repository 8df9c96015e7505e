"""Every form in which an architecture is written, derived from its row in build.yaml.

Sources of the forms: torch's TORCH_CUDA_ARCH_LIST, CMake's CUDA_ARCHITECTURES, nvcc's -gencode, FlashInfer's
FLASHINFER_CUDA_ARCH_LIST and the CuTe DSL's CUTE_DSL_ARCH.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated

from packaging.version import Version
from pydantic import Field

from graft.errors import BadInput
from graft.yamlio import Model, grammar

Capability = Annotated[str, grammar(r"[1-9][0-9]?\.[0-9]", "a compute capability such as 9.0")]
CudaVersion = Annotated[str, grammar(r"[1-9][0-9]\.[0-9]", "a CUDA version such as 13.0")]
NAME = re.compile(r"^sm[1-9][0-9]{1,2}$")


class ArchRow(Model):
    """One row of the table: what cannot be derived."""

    capability: Capability
    suffix: Annotated[str, grammar(r"a", "a suffix that nvcc has for one architecture: a")] | None = None
    cuda: CudaVersion
    family: CudaVersion | None = None
    devices: tuple[str, ...] = Field(min_length=1, strict=False)


class Arch(Model):
    """One architecture with all its forms."""

    name: str
    row: ArchRow

    @property
    def digits(self) -> str:
        """`90`, `120`."""
        return self.row.capability.replace(".", "")

    @property
    def nvcc(self) -> str:
        """`sm_90a`, as nvcc's -arch and in a cubin's header."""
        return f"sm_{self.digits}{self.row.suffix or ''}"

    @property
    def compute(self) -> str:
        """`compute_90a`, the virtual architecture."""
        return f"compute_{self.digits}{self.row.suffix or ''}"

    @property
    def torch_list(self) -> str:
        """`9.0a`, for TORCH_CUDA_ARCH_LIST and FLASHINFER_CUDA_ARCH_LIST."""
        return f"{self.row.capability}{self.row.suffix or ''}"

    @property
    def cmake(self) -> str:
        """`90a`, for CMAKE_CUDA_ARCHITECTURES."""
        return f"{self.digits}{self.row.suffix or ''}"

    @property
    def gencode(self) -> str:
        """The nvcc option for code of this architecture alone."""
        return f"-gencode=arch={self.compute},code={self.nvcc}"

    @property
    def cute_dsl(self) -> str:
        """`sm_90a`, for CUTE_DSL_ARCH."""
        return self.nvcc

    def of_family(self) -> Arch:
        """The same with the suffix `f` in all forms: code that runs in the whole family, as 12.0f on 12.0 and 12.1."""
        return Arch(name=self.name, row=self.row.model_copy(update={"suffix": "f"}))

    def environment(self) -> dict[str, str]:
        """What a component's build is told, under the names upstream reads."""
        return {
            "TORCH_CUDA_ARCH_LIST": self.torch_list,
            "FLASHINFER_CUDA_ARCH_LIST": self.torch_list,
            "CMAKE_CUDA_ARCHITECTURES": self.cmake,
            "NVCC_GENCODE": self.gencode,
            "CUTE_DSL_ARCH": self.cute_dsl,
        }


def select(table: Mapping[str, ArchRow], name: str) -> Arch:
    """The architecture `name`. Raises BadInput for one that the table does not know."""
    if name in table:
        return Arch(name=name, row=table[name])
    wanted = "sm" + re.sub(r"[^0-9]", "", name)
    close = [wanted] if wanted in table else difflib.get_close_matches(name, table, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise BadInput(f"unknown architecture {name!r}", where="ARCH", cure=f"{hint}known: {', '.join(table)}")


def check_cuda(arch: Arch, cuda: str, where: str) -> None:
    """Raises BadInput when the toolkit of CUDA `cuda` has no compiler for `arch`."""
    if Version(cuda) < Version(arch.row.cuda):
        raise BadInput(
            f"{arch.name} needs CUDA {arch.row.cuda} or newer, the recipe has {cuda}",
            where=where,
            cure="raise cuda in the recipe, or choose another ARCH",
        )
