"""A Llama target in plain torch, with a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tests.simulation.layers import LayerKV, Layers, attend, load_checkpoint, rotate


class Pass(NamedTuple):
    """What one forward pass over N tokens leaves: the residual stream [N, hidden] behind each layer, and each
    layer's keys and values of the N tokens and all before them."""

    streams: list[Tensor]
    cache: list[LayerKV]


class Target(Layers):
    """A causal language model; `embedding` and `head` are [vocabulary, hidden]."""

    prefix = "model.layers"

    def __init__(self, config: dict, weights: dict[str, Tensor]) -> None:
        if config["model_type"] != "llama":
            raise ValueError(f"config.json: model_type is {config['model_type']!r}; set a 'llama' target")
        super().__init__(config, weights)
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = self.embedding if config.get("tie_word_embeddings") else weights["lm_head.weight"]

    @classmethod
    def load(cls, folder: Path) -> Target:
        """Read config.json and model.safetensors of a target's folder."""
        return cls(*load_checkpoint(folder))

    def forward(self, ids: Sequence[int], cache: list[LayerKV] | None = None) -> Pass:
        """Run `ids`, which continue the tokens in `cache`."""
        past = cache[0][0].shape[1] if cache else 0
        positions = past + torch.arange(len(ids))
        visible = torch.arange(past + len(ids)) <= positions[:, None]
        hidden, streams, new_cache = self.embedding[list(ids)], [], []
        for layer in range(self.num_layers):
            name = f"{self.prefix}.{layer}"
            x = self.norm(hidden, f"{name}.input_layernorm")
            keys, values = self._keys_values(name, x, positions, cache[layer] if cache else None)
            queries = rotate(self.heads(x, f"{name}.self_attn.q_proj"), positions, self.theta)
            hidden = hidden + self.linear(attend(queries, keys, values, visible), f"{name}.self_attn.o_proj")
            hidden = hidden + self.mlp(self.norm(hidden, f"{name}.post_attention_layernorm"), f"{name}.mlp")
            streams.append(hidden)
            new_cache.append((keys, values))
        return Pass(streams, new_cache)

    def logits(self, stream: Tensor) -> Tensor:
        """[N, vocabulary] of the stream behind the last layer."""
        return self.norm(stream, "model.norm") @ self.head.T

    def _keys_values(self, name: str, x: Tensor, positions: Tensor, past: LayerKV | None) -> LayerKV:
        keys = rotate(self.heads(x, f"{name}.self_attn.k_proj"), positions, self.theta)
        values = self.heads(x, f"{name}.self_attn.v_proj")
        if past is None:
            return keys, values
        return torch.cat([past[0], keys], dim=1), torch.cat([past[1], values], dim=1)
