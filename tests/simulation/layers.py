"""The parts that the Llama target and the Qwen3-like drafter share: plain torch, fp32, one sequence."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

#: Keys (rotated) and values of one layer, both [kv_heads, tokens, head_dim].
LayerKV = tuple[Tensor, Tensor]


def load_checkpoint(folder: Path) -> tuple[dict, dict[str, Tensor]]:
    """config.json and the weights, as fp32, of a single-file checkpoint."""
    weights = load_file(folder / "model.safetensors")
    return json.loads((folder / "config.json").read_text()), {k: v.float() for k, v in weights.items()}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension of x, scaled by `weight`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding that pairs the halves. x [heads, tokens, head_dim], positions [tokens]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions.to(torch.float32)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """Grouped attention, [N, heads * head_dim].

    queries [heads, N, head_dim]; keys and values [kv_heads, M, head_dim]; `visible` is a bool mask [N, M],
    and without it all is visible.
    """
    group = queries.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)
    scores = queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)


class Layers:
    """Weights by name, and what every decoder layer does with them.

    `config` is the checkpoint's config.json, `weights` are its tensors as fp32. Raises ValueError for a
    variant of the architecture that is not written out here.
    """

    #: Where the checkpoint keeps its decoder layers.
    prefix = "layers"

    def __init__(self, config: dict, weights: dict[str, Tensor]) -> None:
        for key in ("layer_types", "rope_scaling", "attention_bias", "mlp_bias"):
            if config.get(key):
                raise ValueError(f"config.json: the simulation knows no {key}={config[key]!r}; remove it")
        self.weights = weights
        self.num_layers: int = config["num_hidden_layers"]
        self.num_heads: int = config["num_attention_heads"]
        self.num_kv_heads: int = config["num_key_value_heads"]
        self.head_dim: int = config.get("head_dim") or config["hidden_size"] // self.num_heads
        self.theta: float = config["rope_theta"]
        self.eps: float = config["rms_norm_eps"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        """Project by a weight of the checkpoint."""
        return functional.linear(x, self.weights[f"{name}.weight"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Norm by a weight of the checkpoint."""
        return rms_norm(x, self.weights[f"{name}.weight"], self.eps)

    def heads(self, x: Tensor, name: str) -> Tensor:
        """Project [tokens, hidden] and split the result: [heads, tokens, head_dim]."""
        return self.linear(x, name).unflatten(-1, (-1, self.head_dim)).transpose(0, 1)

    def mlp(self, x: Tensor, name: str) -> Tensor:
        """The gated feed-forward part, [tokens, hidden]."""
        gate, up = self.linear(x, f"{name}.gate_proj"), self.linear(x, f"{name}.up_proj")
        return self.linear(functional.silu(gate) * up, f"{name}.down_proj")
