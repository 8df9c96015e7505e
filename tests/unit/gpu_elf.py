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


def elf(
    sections: dict[str, bytes],
    *,
    nobits: tuple[str, ...] = (),
    kind: int = 3,
    machine: int = 62,
    ident: bytes = bytes(9),
    flags: int = 0,
) -> bytes:
    """A 64-bit ELF file with these sections: by default a shared object (kind 3) for x86-64 (machine 62).

    .text* is code, everything else data that is loaded. ident: what follows the first 7 bytes.
    """
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    at, body, headers = 64, b"", [bytes(64)]
    for name, data in {**sections, ".shstrtab": names}.items():
        section = 8 if name in nobits else 1
        access = 6 if name.startswith(".text") else 0 if name == ".shstrtab" else 2
        offset = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", offset, section, access, 0, at + len(body), len(data), 0, 0, 8, 0))
        body += b"" if section == 8 else data + bytes(-len(data) % 8)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + ident,
        *(kind, machine, 1, 0, 0, at + len(body), flags, 64, 0, 0, 64, len(headers), len(headers) - 1),
    )
    return head + body + b"".join(headers)


def gpu_library(*archs: str) -> bytes:
    """A library whose one fatbin holds code for these."""
    return elf({".text": b"host", ".nv_fatbin": container(*archs)})


def cubin(arch: str = "sm_90", *, kernel: bool = True, relocatable: bool = False) -> bytes:
    """A bare cubin as ptxas 13.0 writes it, for sm_90, sm_90a, ...; `f` leaves no trace in one."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    compat = bytes([2, 9, arch.endswith("a"), 0, 4, 0x0B, 4, 0, 2, 9, 0, 0, 2, 2, 1, 0])
    sections = {".nv.compat": compat, ".text.k" if kernel else ".nv.info": b"code" * 4}
    ident = bytes([0x41, 8]) + bytes(7)
    return elf(sections, kind=1 if relocatable else 2, machine=190, ident=ident, flags=0x6000002 | number << 8)


def archive(**members: bytes) -> bytes:
    """A static library (ar(5)) with these members."""
    out = b"!<arch>\n"
    for name, data in members.items():
        head = f"{name + '/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
        out += head + data + b"\n" * (len(data) % 2)
    return out
