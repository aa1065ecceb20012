"""What the batched target and the trained drafter share. Shapes: S sequences, N tokens, H hidden size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The numbers of a config.json that every decoder layer needs."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    eps: float

    @classmethod
    def of(cls, config: dict) -> Shape:
        heads = config["num_attention_heads"]
        return cls(
            config["num_hidden_layers"],
            heads,
            config["num_key_value_heads"],
            config.get("head_dim") or config["hidden_size"] // heads,
            config["rope_theta"],
            config["rms_norm_eps"],
        )


def read_checkpoint(folder: Path) -> tuple[dict, dict[str, Tensor]]:
    """config.json and the weights (fp32, on the CPU) of a single-file checkpoint."""
    config = json.loads((folder / "config.json").read_text())
    return config, {name: w.float() for name, w in load_file(folder / "model.safetensors").items()}


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Gated feed-forward part; gate_up [2 * inner, H] holds the gate's rows before the up projection's."""
    gate, up = functional.linear(x, gate_up).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate) * up, down)


class Rotary:
    """Rotary embedding that pairs the halves of a head; positions are turned into cosines and sines once."""

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype, positions: int) -> None:
        half = shape.head_dim // 2
        frequencies = shape.theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
        self._cos = angles.cos().repeat(1, 2).to(device, dtype)
        # The sign of the first half stands in the sine, so that a rotation needs no negation.
        self._sin = torch.cat([-angles.sin(), angles.sin()], dim=-1).to(device, dtype)

    def __call__(self, x: Tensor, positions: Tensor | slice) -> Tensor:
        """x [..., N, heads, head_dim] with `positions` [..., N] or a slice of the table of N rows."""
        cos, sin = self._cos[positions].unsqueeze(-2), self._sin[positions].unsqueeze(-2)
        return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin
