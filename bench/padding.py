"""How one weight grows when a model is widened without a change of its function.

The residual stream keeps its old dimensions in front and zeros behind them. So whatever writes to the stream
gets zero rows for the new dimensions, whatever reads new and live inputs (added heads, added neurons) gets
zero columns for them, and everything else that is added is noise: it costs time and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from bench.errors import BenchError

NOISE_STD = 0.02  # as models are initialised: the added activations stay finite, so that zero times them is zero

#: Weight -> what its axes stand for. A linear weight is [outputs, inputs].
_AXES = {
    "embed_tokens": ("vocabulary", "hidden"),
    "lm_head": ("vocabulary", "hidden"),
    "q_proj": ("queries", "hidden"),
    "k_proj": ("keys", "hidden"),
    "v_proj": ("keys", "hidden"),
    "o_proj": ("hidden", "queries"),
    "gate_proj": ("neurons", "hidden"),
    "up_proj": ("neurons", "hidden"),
    "down_proj": ("hidden", "neurons"),
    "fc": ("hidden", "features"),
    "q_norm": ("head",),
    "k_norm": ("head",),
    "input_layernorm": ("hidden",),
    "post_attention_layernorm": ("hidden",),
    "hidden_norm": ("hidden",),
    "norm": ("hidden",),
}


@dataclass(frozen=True)
class Sizes:
    """What a model's weights are shaped by."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int

    def axis(self, kind: str, old_length: int, old: Sizes) -> int:
        """Length that an axis of `kind` has at these sizes, given its length at the `old` ones."""
        return {
            "hidden": self.hidden,
            "queries": self.heads * self.head_dim,
            "keys": self.kv_heads * self.head_dim,
            "neurons": self.intermediate,
            "features": old_length // old.hidden * self.hidden,
        }.get(kind, old_length)


class Padding:
    """Grows the weights of one model from `old` to `new` sizes.

    normed_queries: whether the model normalises each head's queries and keys (it has `q_norm` and `k_norm`).
    generator: source of the noise; its device is where the weights are made.
    """

    def __init__(self, old: Sizes, new: Sizes, normed_queries: bool, generator: torch.Generator) -> None:
        self.old, self.new, self.normed_queries, self.generator = old, new, normed_queries, generator
        # The mean square of a padded vector is h/H of what it was.
        self.scale = sqrt(old.hidden / new.hidden)

    def shape(self, name: str, shape: list[int]) -> tuple[int, ...]:
        """Shape of the grown weight. Raises BenchError for a weight whose place in the model is unknown."""
        return tuple(self.new.axis(kind, n, self.old) for kind, n in zip(_axes(name, shape), shape, strict=True))

    def grow(self, name: str, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """The grown weight on the generator's device: kept part, zeros where they must be, noise elsewhere."""
        kinds, device = _axes(name, weight.shape), self.generator.device
        grown = torch.empty(self.shape(name, list(weight.shape)), dtype=dtype, device=device)
        grown.normal_(std=NOISE_STD, generator=self.generator)
        kept = [self._kept(kind, n).to(device) for kind, n in zip(kinds, weight.shape, strict=True)]
        self._zero(_part(name), kinds, grown)
        grown[torch.meshgrid(*kept, indexing="ij")] = (weight.to(device).float() * self._factor(name)).to(dtype)
        return grown

    def _kept(self, kind: str, length: int) -> Tensor:
        """Where the old positions of an axis lie on the new one."""
        if kind != "features":
            return torch.arange(length)
        blocks = torch.arange(length // self.old.hidden) * self.new.hidden
        return (blocks[:, None] + torch.arange(self.old.hidden)).flatten()

    def _zero(self, part: str, kinds: tuple[str, ...], grown: Tensor) -> None:
        if part == "embed_tokens":  # its rows go to the stream as they are
            grown[:, self.old.hidden :] = 0
        if len(kinds) == 2 and kinds[0] == "hidden":
            grown[self.old.hidden :] = 0
        if len(kinds) == 2 and kinds[1] in ("queries", "neurons"):
            grown[:, self.old.axis(kinds[1], 0, self.old) :] = 0

    def _factor(self, name: str) -> float:
        part = _part(name)
        if _AXES[part] == ("hidden",):
            return self.scale
        # The norms of the heads see no padding, yet share the eps that shrinks with the mean square elsewhere.
        return self.scale if self.normed_queries and part in ("q_proj", "k_proj") else 1.0


def _part(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _axes(name: str, shape) -> tuple[str, ...]:
    kinds = _AXES.get(_part(name)) if name.endswith(".weight") else None
    if kinds is None or len(kinds) != len(shape):
        raise BenchError(f"the weight {name} has no place in a Llama target or a DFlash drafter: widen another pair")
    return kinds
