#!/usr/bin/env python3
"""Memory and verify cost of DDTree on Kimi K2.6, from its shapes alone: prints the tables of patches/KIMI.md.

Nothing here was measured. Decimal units: 1 GB is 1e9 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Target:
    """A model with MLA and routed experts; dimensions as its config.json names them."""

    layers: int = 61
    hidden: int = 7168
    heads: int = 64
    query_rank: int = 1536
    latent: int = 512
    rope: int = 64
    nope: int = 128
    value: int = 128
    dense_layers: int = 1
    dense_mlp: int = 18432
    experts: int = 384
    chosen: int = 8
    shared: int = 1
    expert_mlp: int = 2048
    vocabulary: int = 163840
    #: int4 and a bf16 scale for each group of 32.
    expert_bits: float = 4.5
    #: Splits that the Triton backend provides for an MLA decode: the power of two from the number of SMs on.
    kv_splits: int = 256


@dataclass(frozen=True)
class Drafter:
    """A DFlash drafter of Qwen3 layers, keys and values per head; `taps` are the target's layers that it reads."""

    layers: int = 6
    kv_heads: int = 8
    head_dim: int = 128
    taps: int = 6


@dataclass(frozen=True)
class Card:
    """Memory, bandwidth, multiprocessors, and the query rows that one program of the extend kernel holds for MLA."""

    name: str
    gb: float
    tb_per_s: float
    sms: int
    rows: int


KIMI, DRAFTER = Target(), Drafter()
CARDS = (Card("H200", 141, 4.8, 132, 32), Card("B200", 180, 8.0, 148, 16), Card("RTX PRO 6000", 96, 1.79, 188, 32))
RANKS = 8
CONTEXTS = (131072, 262144)
WIDTHS = (9, 17, 33)
BF16, FP32, INT64 = 2, 4, 8


def weights(t: Target, ranks: int) -> int:
    """Bytes of weights on one GPU; the latent projections are on all of them, the rest is split."""
    latent = t.hidden * (t.query_rank + t.latent + t.rope) * t.layers * BF16
    per_head = t.query_rank * (t.nope + t.rope) + t.latent * (t.nope + t.value) + t.value * t.hidden
    attention = per_head * t.heads * t.layers * BF16
    expert = 3 * t.hidden * t.expert_mlp
    sparse = t.layers - t.dense_layers
    routed = expert * t.experts * sparse * t.expert_bits / 8
    always = (expert * t.shared * sparse + 3 * t.hidden * t.dense_mlp * t.dense_layers) * BF16
    gates = t.hidden * t.experts * sparse * BF16
    vocabulary = 2 * t.vocabulary * t.hidden * BF16
    return int(latent + gates + (attention + routed + always + vocabulary) / ranks)


def target_kv(t: Target) -> int:
    """Bytes per token on each GPU: every rank holds the whole latent."""
    return (t.latent + t.rope) * t.layers * BF16


def drafter_kv(d: Drafter, ranks: int) -> int:
    """Bytes per token on each GPU; a rank holds at least one head."""
    return max(1, d.kv_heads // ranks) * 2 * d.head_dim * d.layers * BF16


def graph_buffers(requests: int, nodes: int, context: int, ranks: int, t: Target = KIMI) -> dict[str, int]:
    """Bytes that the target's attention backend holds for its captured verify graphs, one row per request."""
    return {
        "scratch": requests * t.heads // ranks * t.kv_splits * t.latent * FP32,
        "indices": requests * context * INT64,
        "mask": requests * nodes * (context + nodes),
    }


def step_buffers(requests: int, nodes: int, t: Target = KIMI, d: Drafter = DRAFTER) -> dict[str, int]:
    """Bytes of a step's largest results: logits of every node, and the hidden states that the drafter reads."""
    return {
        "logits": requests * nodes * t.vocabulary * FP32,
        "hidden": requests * nodes * d.taps * t.hidden * BF16,
    }


def prefix_reads(width: int, rows: int) -> int:
    """How often one head reads the prefix: once for each tile of query rows."""
    return ceil(width / rows)


def verify_ms(width: int, context: int, card: Card, ranks: int = RANKS, t: Target = KIMI) -> float:
    """Milliseconds per request over its prefix in all layers: a batch fills the GPU, no cache serves a read."""
    streams = t.heads // ranks * prefix_reads(width, card.rows)
    return streams * context * target_kv(t) / card.tb_per_s / 1e9


def alone_ms(context: int, card: Card, t: Target = KIMI) -> float:
    """The same for a request alone: its programs run side by side, each at a multiprocessor's share of bandwidth."""
    return context * target_kv(t) * card.sms / card.tb_per_s / 1e9


def grouped_ms(context: int, card: Card, t: Target = KIMI) -> float:
    """The same for a kernel that reads the prefix once for all heads and nodes."""
    return context * target_kv(t) / card.tb_per_s / 1e9


def touched(nodes: int, t: Target = KIMI) -> float:
    """Share of the routed experts that `nodes` tokens touch, if they choose independently."""
    return 1 - (1 - t.chosen / t.experts) ** nodes


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gb(size: float) -> str:
    return f"{size / 1e9:.2f}" if size < 1e10 else f"{size / 1e9:.1f}"


def memory_table(requests: int = 48) -> str:
    rows = []
    for context in CONTEXTS:
        for nodes in WIDTHS:
            parts = graph_buffers(requests, nodes, context, RANKS) | step_buffers(requests, nodes)
            rows.append([f"{context // 1024}k", str(nodes), *map(gb, parts.values()), gb(sum(parts.values()))])
    head = ["context", "W", "scratch", "KV indices", "mask", "logits", "hidden", "together"]
    return table(head, rows)


def fit_table() -> str:
    rows = []
    for card in CARDS:
        left = 0.9 * card.gb * 1e9 - weights(KIMI, RANKS)
        per_token = target_kv(KIMI) + drafter_kv(DRAFTER, RANKS)
        tokens = f"{left / per_token / 1e6:.2f} M" if left > 0 else "none: take more GPUs"
        rows.append([card.name, gb(card.gb * 1e9), gb(weights(KIMI, RANKS)), tokens])
    return table(["GPU (8 of them)", "GB", "weights, GB", "tokens in 90 % less the weights"], rows)


def cost_table() -> str:
    rows = []
    for card in CARDS:
        for context in (4096, 16384, 65536, *CONTEXTS):
            costs = [f"{verify_ms(width, context, card):.1f}" for width in WIDTHS]
            costs += [f"{alone_ms(context, card):.0f}", f"{grouped_ms(context, card):.2f}"]
            rows.append([card.name, f"{context // 1024}k", *costs])
    return table(["GPU", "context", *[f"W {width}" for width in WIDTHS], "alone, any W", "read once"], rows)


def render() -> dict[str, str]:
    """The tables of patches/KIMI.md by name."""
    kv = [
        ["target, on every GPU", str(target_kv(KIMI))],
        *[
            [f"drafter with {heads} KV heads, per GPU of 8", str(drafter_kv(Drafter(kv_heads=heads), RANKS))]
            for heads in (8, 64)
        ],
    ]
    experts = [[str(nodes), f"{touched(nodes):.0%}"] for nodes in (1, *WIDTHS, 65)]
    return {
        "fit": fit_table(),
        "kv": table(["KV of one token", "bytes"], kv),
        "memory": memory_table(),
        "cost": cost_table(),
        "experts": table(["nodes", "experts touched"], experts),
    }


if __name__ == "__main__":
    for name, text in render().items():
        print(f"{name}\n\n{text}\n")
