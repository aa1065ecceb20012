"""A Llama target that runs many sequences of one length at once.

Plain torch on purpose: with thousands of sequences a step is bound by the card and not by Python, and no server
has to be started, compiled and asked.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from models.train.layers import Rotary, Shape, mlp, norm, read_checkpoint

_POSITIONS = 2048


class Cache:
    """Keys and values of every layer: [layers][2, S, kv_heads, capacity, head_dim]."""

    def __init__(self, target: Target, sequences: int, capacity: int) -> None:
        size = (2, sequences, target.shape.kv_heads, capacity, target.shape.head_dim)
        self.layers = [torch.empty(size, device=target.device, dtype=target.dtype) for _ in range(target.shape.layers)]

    def keep(self, rows: Tensor) -> None:
        """Drop all sequences but `rows` (indices)."""
        for i, layer in enumerate(self.layers):
            self.layers[i] = layer[:, rows]


class Target:
    """`embedding` [vocabulary, H] in the computing dtype; the output head stays fp32."""

    def __init__(self, config: dict, weights: dict[str, Tensor], device: str, dtype: torch.dtype) -> None:
        self.shape, self.device, self.dtype = Shape.of(config), torch.device(device), dtype
        self.embedding = self._place(weights["model.embed_tokens.weight"])
        tied = config.get("tie_word_embeddings")
        self.head = weights["model.embed_tokens.weight" if tied else "lm_head.weight"].to(device)
        self._norm = self._place(weights["model.norm.weight"])
        self._layers = [self._layer(weights, f"model.layers.{i}") for i in range(self.shape.layers)]
        self._rotary = Rotary(self.shape, self.device, dtype, _POSITIONS)

    @classmethod
    def load(cls, folder: Path, device: str, dtype: torch.dtype) -> Target:
        """Read config.json and model.safetensors of a target's folder."""
        return cls(*read_checkpoint(folder), device, dtype)

    def _place(self, weight: Tensor) -> Tensor:
        return weight.to(self.device, self.dtype)

    def _layer(self, weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        def rows(*parts: str) -> Tensor:
            return self._place(torch.cat([weights[f"{name}.{part}.weight"] for part in parts]))

        return {
            "norm": rows("input_layernorm"),
            "qkv": rows("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "out": rows("self_attn.o_proj"),
            "mlp_norm": rows("post_attention_layernorm"),
            "gate_up": rows("mlp.gate_proj", "mlp.up_proj"),
            "down": rows("mlp.down_proj"),
        }

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, cache: Cache | None = None, past: int = 0, collect: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Run `ids` [S, N] behind `past` cached tokens, N = 1 when there are any.

        Returns the stream behind the last layer [S, N, H], and the streams behind the layers `collect`
        concatenated [S, N, len(collect) * H] (None without any).
        """
        hidden, streams = self.embedding[ids], []
        for i, w in enumerate(self._layers):
            attended = self._attention(norm(hidden, w["norm"], self.shape.eps), w, i, cache, past)
            hidden = hidden + functional.linear(attended, w["out"])
            hidden = hidden + mlp(norm(hidden, w["mlp_norm"], self.shape.eps), w["gate_up"], w["down"])
            if i in collect:
                streams.append(hidden)
        return hidden, torch.cat(streams, dim=-1) if streams else None

    @torch.inference_mode()
    def logits(self, stream: Tensor) -> Tensor:
        """fp32 [N, vocabulary] of streams [N, H]: 16 bits would make ties of near misses and change the text."""
        return norm(stream, self._norm, self.shape.eps).float() @ self.head.T

    def _attention(self, x: Tensor, w: dict[str, Tensor], layer: int, cache: Cache | None, past: int) -> Tensor:
        shape, tokens = self.shape, x.shape[1]
        rows = functional.linear(x, w["qkv"]).unflatten(-1, (-1, shape.head_dim))
        turned = self._rotary(rows[:, :, : -shape.kv_heads], slice(past, past + tokens))
        queries, keys = turned.split([shape.heads, shape.kv_heads], dim=2)
        queries, keys, values = (y.transpose(1, 2) for y in (queries, keys, rows[:, :, -shape.kv_heads :]))
        if cache is not None:
            stored = cache.layers[layer]
            stored[0, :, :, past : past + tokens] = keys
            stored[1, :, :, past : past + tokens] = values
        if not past:
            seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
            return seen.transpose(1, 2).flatten(2)
        # The query heads that share a key head become its query rows: nothing is repeated, nothing masked.
        queries = queries.reshape(-1, shape.kv_heads, shape.heads // shape.kv_heads, shape.head_dim)
        seen = functional.scaled_dot_product_attention(queries, *stored[:, :, :, : past + 1])
        return seen.reshape(-1, 1, shape.heads * shape.head_dim)
