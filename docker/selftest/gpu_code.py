"""Which GPUs a compiled library holds code for, read from its file: no CUDA tool is needed.

nvcc stores device code in the ELF sections `.nv_fatbin` and `__nv_relfatbin`, one container after the other. The layout
below is not documented by NVIDIA; tests/image/test_gpu_code.py compares it with what nvcc was asked for.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
CONTAINER_MAGIC = 0xBA55ED50
PTX, CUBIN = 1, 2
ARCHITECTURE_SPECIFIC, FAMILY_SPECIFIC = 1 << 20, 1 << 21


class Code(NamedTuple):
    """One kind of device code: `ptx` or machine code, `capability` 90 for 9.0, `suffix` "", "a" or "f"."""

    ptx: bool
    capability: int
    suffix: str

    def __str__(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.capability}{self.suffix}"

    def runs_on(self, capability: int) -> bool:
        """Whether a GPU loads it: the rules of compatibility in NVIDIA's guide to nvcc.

        "a" is for one capability only, "f" for the same major one from its minor one up, plain machine code the same;
        plain PTX is compiled by the driver for every newer GPU.
        """
        if self.suffix == "a":
            return self.capability == capability
        if self.ptx and not self.suffix:
            return self.capability <= capability
        return self.capability // 10 == capability // 10 and self.capability <= capability


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def machine(path: Path) -> int:
    """The ELF number of the processor: 62 is x86-64.

    Raises:
        ValueError: the file is cut off.
    """
    with path.open("rb") as file:
        head = file.read(20)
    if len(head) < 20:
        raise ValueError("is cut off")
    return struct.unpack_from("<H", head, 18)[0]


def gpu_code(path: Path) -> set[Code]:
    """Every kind of device code in an ELF file, empty where it has none.

    Raises:
        ValueError: the file is cut off, or a container is not what it is known to be.
    """
    found: set[Code] = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            for name, start, size in _sections(data):
                if name in SECTIONS:
                    found.update(_entries(data, start, start + size))
        except struct.error:
            raise ValueError("is cut off") from None
    return found


def _sections(data: mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, name_index = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<II4Q", data, table + index * entry_size) for index in range(count)]
    names = headers[name_index][4] if headers else 0
    for name, _, _, _, offset, size in headers:
        first = names + name
        yield data[first : data.find(b"\0", first)].decode(), offset, size


def _entries(data: mmap.mmap, start: int, end: int) -> Iterator[Code]:
    """The containers of one section, each a header of 16 bytes and entries that have headers of their own."""
    while start < end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, start)
        if magic != CONTAINER_MAGIC:  # padding between two objects of the link
            start += 8
            continue
        entry, start = start + header, start + header + size
        if start > end:
            raise ValueError("has device code that is cut off")
        while entry < start:
            kind, _, own_header, payload = struct.unpack_from("<HHIQ", data, entry)
            (capability,) = struct.unpack_from("<I", data, entry + 28)
            (flags,) = struct.unpack_from("<Q", data, entry + 40)
            if kind in (PTX, CUBIN):
                yield Code(kind == PTX, capability, _suffix(flags))
            entry += own_header + payload


def _suffix(flags: int) -> str:
    if flags & ARCHITECTURE_SPECIFIC:
        return "a"
    return "f" if flags & FAMILY_SPECIFIC else ""
