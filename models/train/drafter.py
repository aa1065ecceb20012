"""The DFlash drafter with gradients: many anchors of many conversations in one pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.errors import ModelError
from models.train.layers import Rotary, Shape, mlp, norm

_POSITIONS = 2048


class Drafter:
    """fp32 weights under their checkpoint names; a pass computes in `dtype`.

    The target's embedding is borrowed, so that final hidden states go to the target's head.
    """

    def __init__(self, config: dict, weights: dict[str, Tensor], embedding: Tensor, dtype: torch.dtype) -> None:
        self.config, self.shape, self.dtype = config, Shape.of(config), dtype
        self.block_size: int = config["block_size"]
        self.layer_ids = tuple(config["dflash_config"]["target_layer_ids"])
        self._mask_token: int = config["dflash_config"]["mask_token_id"]
        self._embedding = embedding.to(dtype)
        self.weights = {name: w.to(embedding.device, torch.float32) for name, w in weights.items()}
        self._rotary = Rotary(self.shape, embedding.device, dtype, _POSITIONS)

    def hidden(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """Final hidden states [S, A, D, H] of the blocks whose roots stand at positions `anchors` [S, A].

        tokens [S, T], features [S, T, F] as in corpus.Batch; a block sees the positions before its root, and
        all of itself.
        """
        w = {name: weight.to(self.dtype) for name, weight in self.weights.items()}
        sequences, count = anchors.shape
        context = norm(functional.linear(features, w["fc.weight"]), w["hidden_norm.weight"], self.shape.eps)
        mask = self._visible(tokens.shape[1], anchors)
        ids = torch.full((sequences, count, self.block_size), self._mask_token, device=tokens.device)
        ids[:, :, 0] = tokens.gather(1, anchors)
        positions = anchors[:, :, None] + torch.arange(self.block_size, device=tokens.device)
        hidden, positions = self._embedding[ids].flatten(1, 2), positions.flatten(1)
        for layer in range(self.shape.layers):
            hidden = self._layer(w, f"layers.{layer}", hidden, positions, context, mask)
        return norm(hidden, w["norm.weight"], self.shape.eps).unflatten(1, (count, self.block_size))

    def _layer(self, w: dict, name: str, hidden: Tensor, positions: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        eps, attention = self.shape.eps, f"{name}.self_attn"
        x = norm(hidden, w[f"{name}.input_layernorm.weight"], eps)
        queries = self._rotary(
            norm(self._heads(x, w[f"{attention}.q_proj.weight"]), w[f"{attention}.q_norm.weight"], eps), positions
        )
        seen = self._keys_values(w, attention, context, slice(0, context.shape[1]))
        own = self._keys_values(w, attention, x, positions)
        group = self.shape.heads // self.shape.kv_heads
        # Repeated by hand: the kernels that take a mask know no grouped heads.
        keys, values = (
            torch.cat(both, dim=1).repeat_interleave(group, dim=2).transpose(1, 2)
            for both in zip(seen, own, strict=True)
        )
        out = functional.scaled_dot_product_attention(queries.transpose(1, 2), keys, values, attn_mask=mask)
        hidden = hidden + functional.linear(out.transpose(1, 2).flatten(2), w[f"{attention}.o_proj.weight"])
        gate_up = torch.cat([w[f"{name}.mlp.{part}_proj.weight"] for part in ("gate", "up")])
        x = norm(hidden, w[f"{name}.post_attention_layernorm.weight"], eps)
        return hidden + mlp(x, gate_up, w[f"{name}.mlp.down_proj.weight"])

    def _keys_values(self, w: dict, attention: str, x: Tensor, positions: Tensor | slice) -> tuple[Tensor, Tensor]:
        keys = norm(self._heads(x, w[f"{attention}.k_proj.weight"]), w[f"{attention}.k_norm.weight"], self.shape.eps)
        return self._rotary(keys, positions), self._heads(x, w[f"{attention}.v_proj.weight"])

    def _heads(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight).unflatten(-1, (-1, self.shape.head_dim))

    def _visible(self, context: int, anchors: Tensor) -> Tensor:
        """Additive mask [S, 1, A * D, T + A * D]."""
        sequences, count = anchors.shape
        device, block = anchors.device, self.block_size
        before = torch.arange(context, device=device) < anchors[:, :, None]
        own = torch.eye(count, dtype=torch.bool, device=device).repeat_interleave(block, dim=1)
        visible = torch.cat([before, own.expand(sequences, -1, -1)], dim=-1).repeat_interleave(block, dim=1)
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=device)
        return mask.masked_fill_(~visible, float("-inf")).unsqueeze(1)


def add_layers(config: dict, weights: dict[str, Tensor], layers: int) -> tuple[dict, dict[str, Tensor]]:
    """Deepen a drafter to `layers` without changing what it computes.

    New layers are copies of the last one whose two output projections are zero. Raises ModelError for fewer
    layers than there are.
    """
    old = config["num_hidden_layers"]
    if layers < old:
        raise ModelError(f"--layers is {layers}; the drafter to start from has {old}, set at least that.")
    weights = dict(weights)
    for layer in range(old, layers):
        last, new = f"layers.{old - 1}.", f"layers.{layer}."
        for name in [name for name in weights if name.startswith(last)]:
            zero = name.endswith(("o_proj.weight", "down_proj.weight"))
            weights[new + name.removeprefix(last)] = torch.zeros_like(weights[name]) if zero else weights[name].clone()
    return config | {"num_hidden_layers": layers}, weights
