"""Small ELF files with GPU code in them, byte by byte, for the tests of fatbin.py and the smoke tests."""

from __future__ import annotations

import struct

KIND = {"ptx": 1, "cubin": 2, "lto": 8}


def entry(arch: str, payload: bytes = b"code" * 4) -> bytes:
    """One fatbin entry; `arch` as nvcc spells it: sm_90a, compute_90, lto_90."""
    form, number = arch.split("_")
    suffix = number[-1] if number[-1] in "af" else ""
    capability = int(number.rstrip("af"))
    flags = 0x11 | {"a": 0x100000, "f": 0x200000, "": 0}[suffix]
    kind = KIND[{"sm": "cubin", "compute": "ptx", "lto": "lto"}[form]]
    head = struct.pack("<HHIQIIHHIIIQ", kind, 0x101, 64, len(payload), 0, 0, 8, 1, capability, 0, 0, flags)
    return head + bytes(64 - len(head)) + payload


def container(*archs: str) -> bytes:
    body = b"".join(entry(arch) for arch in archs)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(sections: dict[str, bytes], *, nobits: tuple[str, ...] = ()) -> bytes:
    """A 64-bit ELF shared object with these sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    at, body, headers = 64, b"", [bytes(64)]
    for name, data in {**sections, ".shstrtab": names}.items():
        kind = 8 if name in nobits else 1
        offset = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", offset, kind, 0, 0, at + len(body), len(data), 0, 0, 8, 0))
        body += b"" if kind == 8 else data + bytes(-len(data) % 8)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(3, 62, 1, 0, 0, at + len(body), 0, 64, 0, 0, 64, len(headers), len(headers) - 1),
    )
    return head + body + b"".join(headers)


def gpu_library(*archs: str) -> bytes:
    """A library whose one fatbin holds code for these."""
    return elf({".text": b"host", ".nv_fatbin": container(*archs)})
