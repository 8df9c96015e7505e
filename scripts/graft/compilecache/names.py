"""The names in Redis: what a component compiles for an architecture, with the same compilers, is kept together."""

from __future__ import annotations

import re

from graft.hashes import digest_of
from graft.plan import KEY_LENGTH, Plan

#: Another number, when what is written there has another form: neither reads what the other wrote.
PREFIX = "graft:ccache:1"
#: Debian's and NVIDIA's packages with programs that make objects. ccache looks at the programs themselves; this only
#: keeps away what it could never take.
COMPILERS = re.compile(r"(?:gcc|g\+\+|cpp|binutils)(?:-[a-z0-9-]+)?|nvidia-(?:cuda-nvcc|nvvm|cuda-crt)(?:-[a-z0-9]+)?")


def compilers_of(plan: Plan) -> str:
    """The identity of the compilers of a plan: the hash of the packages that hold them."""
    pins = {pin.name: pin.sha256 for pin in plan.lock.base.packages}
    pins |= {pin.name: pin.sha256 for layer in plan.foundation for pin in layer.packages}
    return digest_of({name: sha256 for name, sha256 in pins.items() if COMPILERS.fullmatch(name)})


def namespace_of(plan: Plan, component: str) -> str:
    """`graft:ccache:1:<component>:<arch>:<compilers>`: what the names in Redis begin with."""
    return f"{PREFIX}:{component}:{plan.arch.name}:{compilers_of(plan)[:KEY_LENGTH]}"
