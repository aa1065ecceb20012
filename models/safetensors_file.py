"""Write and inspect safetensors files.

An own writer, because the file must be the same byte for byte whatever version of the safetensors
library is installed: its hash is pinned in the registry.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class Float32Tensor:
    """A tensor to write: `load()` returns a float32 array of shape `shape`, only when its turn comes."""

    name: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        count = 4
        for length in self.shape:
            count *= length
        return count


def write_float32(path: Path, tensors: Iterable[Float32Tensor]) -> None:
    """Write `tensors` to `path`, sorted by name, one tensor in memory at a time.

    Raises ValueError when a loaded array has another shape or dtype than announced.
    """
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    with path.open("wb") as out:
        out.write(_header(ordered))
        for tensor in ordered:
            array = tensor.load()
            if array.shape != tensor.shape or array.dtype.name != "float32":
                raise ValueError(f"{tensor.name}: got {array.dtype.name} {array.shape}, not float32 {tensor.shape}")
            out.write(array.astype("<f4", order="C", copy=False).tobytes())


def _header(tensors: list[Float32Tensor]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.nbytes
        entries[tensor.name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the data aligned to 8 bytes
    return _LENGTH.pack(len(text)) + text


def damage(path: Path) -> str | None:
    """Say in a few words why `path` is not a whole safetensors file, or return None.

    Reads the header only: a file cut short, a download of something else and an unfinished copy are
    found, a flipped bit in the data is not (hashes are for that).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_LENGTH.size)
        if len(prefix) < _LENGTH.size:
            return f"is cut short ({size} bytes)"
        (length,) = _LENGTH.unpack(prefix)
        if length > min(_MAX_HEADER_BYTES, size - _LENGTH.size):
            return "is cut short or is not a safetensors file (its header is not whole)"
        header = file.read(length)
    try:
        ends = [entry["data_offsets"][1] for name, entry in json.loads(header).items() if name[:2] != "__"]
        expected = _LENGTH.size + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "is not a safetensors file (its header is not readable)"
    if size != expected:
        return f"has {size} bytes where its header announces {expected}"
    return None
