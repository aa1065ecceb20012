"""The DFlash drafter in plain torch.

A drafter layer is a Qwen3 layer whose attention sees two kinds of keys: those of the context, made from the
target's hidden states, and those of the block itself, in which every position sees every other.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tests.simulation.layers import LayerKV, Layers, attend, load_checkpoint, rotate


class Drafter(Layers):
    """It borrows the target's embedding and output head, so it maps hidden states to hidden states."""

    def __init__(self, config: dict, weights: dict[str, Tensor]) -> None:
        super().__init__(config, weights)
        self.block_size: int = config["block_size"]
        self.mask_token_id: int = config["dflash_config"]["mask_token_id"]
        self.target_layer_ids: list[int] = config["dflash_config"]["target_layer_ids"]

    @classmethod
    def load(cls, folder: Path) -> Drafter:
        """Read config.json and model.safetensors of a drafter's folder."""
        return cls(*load_checkpoint(folder))

    def context(self, features: Tensor) -> list[LayerKV]:
        """Keys and values of every layer for the context positions 0..T-1.

        features [T, len(target_layer_ids) * target hidden size]: the target's hidden states behind each of
        `target_layer_ids`, concatenated in that order.
        """
        # One projection feeds all layers, and no layer's input norm is applied to it.
        hidden = self.norm(self.linear(features, "fc"), "hidden_norm")
        positions = torch.arange(features.shape[0])
        return [self._keys_values(layer, hidden, positions) for layer in range(self.num_layers)]

    def block(self, embeds: Tensor, context: list[LayerKV], start: int, window: int | None = None) -> Tensor:
        """Final hidden states [D, hidden] of a block whose root stands at position `start`.

        embeds [D, hidden]: the target's embeddings of the root and of D-1 mask tokens. Of `context` only the
        positions before `start` are seen, and with a `window` only that many of them.
        """
        seen = slice(0 if window is None else max(0, start - window), start)
        hidden, positions = embeds, start + torch.arange(embeds.shape[0])
        for layer in range(self.num_layers):
            name = f"{self.prefix}.{layer}"
            normed = self.norm(hidden, f"{name}.input_layernorm")
            hidden = hidden + self._attention(layer, normed, positions, context[layer], seen)
            normed = self.norm(hidden, f"{name}.post_attention_layernorm")
            hidden = hidden + self.mlp(normed, f"{name}.mlp")
        return self.norm(hidden, "norm")

    def _attention(self, layer: int, x: Tensor, positions: Tensor, context: LayerKV, seen: slice) -> Tensor:
        name = f"{self.prefix}.{layer}.self_attn"
        queries = rotate(self.norm(self.heads(x, f"{name}.q_proj"), f"{name}.q_norm"), positions, self.theta)
        keys, values = (
            torch.cat([known[:, seen], own], dim=1)
            for known, own in zip(context, self._keys_values(layer, x, positions), strict=True)
        )
        return self.linear(attend(queries, keys, values), f"{name}.o_proj")

    def _keys_values(self, layer: int, x: Tensor, positions: Tensor) -> LayerKV:
        name = f"{self.prefix}.{layer}.self_attn"
        keys = self.norm(self.heads(x, f"{name}.k_proj"), f"{name}.k_norm")
        return rotate(keys, positions, self.theta), self.heads(x, f"{name}.v_proj")
