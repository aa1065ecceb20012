"""A Llama target that runs many sequences at once.

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
#: Attention kernels want masks whose width is a multiple of this.
MULTIPLE = 8


class Cache:
    """Keys and values of every layer: [layers][2, S, kv_heads, capacity, head_dim].

    pad [S]: places at the beginning of each sequence that hold nothing. Rotary positions count them too, which
    changes no distance.
    """

    def __init__(self, target: Target, pad: Tensor, capacity: int) -> None:
        size = (2, len(pad), target.shape.kv_heads, capacity + -capacity % MULTIPLE, target.shape.head_dim)
        # Zeros, since a place that is masked still takes part: nothing times NaN is NaN.
        self.layers = [torch.zeros(size, device=target.device, dtype=target.dtype) for _ in range(target.shape.layers)]
        self.pad = pad

    def keep(self, rows: Tensor) -> None:
        """Drop all sequences but `rows` (indices)."""
        self.pad = self.pad[rows]
        for i, layer in enumerate(self.layers):
            self.layers[i] = layer[:, rows]

    def mask(self, past: int, tokens: int) -> Tensor:
        """What `tokens` new places behind `past` see, additive [S, 1, tokens, places], places a MULTIPLE."""
        device, end = self.pad.device, past + tokens
        places = torch.arange(end + -end % MULTIPLE, device=device)
        own = torch.arange(past, end, device=device)[:, None]
        # Padding sees itself, because a softmax over nothing is NaN.
        visible = (places <= own) & ((places >= self.pad[:, None, None]) | (places == own))
        mask = torch.zeros(visible.shape, device=device, dtype=self.layers[0].dtype)
        return mask.masked_fill_(~visible, float("-inf")).unsqueeze(1)


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
        """Run `ids` [S, N] behind `past` cached places; without a cache, causally from the first on.

        Returns the stream behind the last layer [S, N, H], and the streams behind the layers `collect`
        concatenated [S, N, len(collect) * H] (None without any).
        """
        hidden, streams = self.embedding[ids], []
        # Once per query head of a group: the group's heads become query rows.
        group = self.shape.heads // self.shape.kv_heads
        mask = None if cache is None else cache.mask(past, ids.shape[1]).repeat(1, 1, group, 1)
        for i, w in enumerate(self._layers):
            x, stored = norm(hidden, w["norm"], self.shape.eps), cache.layers[i] if cache else None
            attended = self._attention(x, w, past, stored, mask)
            hidden = hidden + functional.linear(attended, w["out"])
            hidden = hidden + mlp(norm(hidden, w["mlp_norm"], self.shape.eps), w["gate_up"], w["down"])
            if i in collect:
                streams.append(hidden)
        return hidden, torch.cat(streams, dim=-1) if streams else None

    @torch.inference_mode()
    def logits(self, stream: Tensor) -> Tensor:
        """fp32 [N, vocabulary] of streams [N, H]: 16 bits would make ties of near misses and change the text."""
        return norm(stream, self._norm, self.shape.eps).float() @ self.head.T

    def _attention(
        self, x: Tensor, w: dict[str, Tensor], past: int, stored: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        shape, end = self.shape, past + x.shape[1]
        rows = functional.linear(x, w["qkv"]).unflatten(-1, (-1, shape.head_dim))
        turned = self._rotary(rows[:, :, : -shape.kv_heads], slice(past, end))
        queries, keys = turned.split([shape.heads, shape.kv_heads], dim=2)
        queries, keys, values = (y.transpose(1, 2) for y in (queries, keys, rows[:, :, -shape.kv_heads :]))
        if stored is None:
            seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
            return seen.transpose(1, 2).flatten(2)
        stored[0, :, :, past:end] = keys
        stored[1, :, :, past:end] = values
        # The query heads that share a key head are its query rows, so that no key is repeated.
        group = shape.heads // shape.kv_heads
        queries = queries.unflatten(1, (shape.kv_heads, group)).flatten(2, 3)
        keys, values = stored[:, :, :, : mask.shape[-1]]
        seen = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return seen.unflatten(2, (group, -1)).permute(0, 3, 1, 2, 4).flatten(2)
