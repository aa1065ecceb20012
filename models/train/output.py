"""What a run leaves: the drafter in parts that small transfers carry, its hash and the report."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

PART_BYTES = 15 * 2**20
_PART = "weights-{}"


def _put(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content)
    aside.replace(path)


def write_drafter(folder: Path, config: dict, weights: dict[str, Tensor], report: dict) -> None:
    """Write weights-0, weights-1, ..., model.sha256 (of the joined parts), config.json and training.json.

    weights: any dtype, stored as bf16. `cat weights-* > model.safetensors` gives the checkpoint back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weights[name].detach().bfloat16().cpu().contiguous() for name in sorted(weights)}
    content = save(tensors, metadata={"format": "pt"})
    for number, begin in enumerate(range(0, len(content), PART_BYTES)):
        _put(folder / _PART.format(number), content[begin : begin + PART_BYTES])
    _put(folder / "model.sha256", f"{hashlib.sha256(content).hexdigest()}  model.safetensors\n".encode())
    _put(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())
    _put(folder / "training.json", (json.dumps(report, indent=1) + "\n").encode())
