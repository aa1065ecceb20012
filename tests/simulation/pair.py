"""A target with its drafter: the greedy answer, the proposals at each of its tokens, the walk over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from tests.simulation.chat import Chat
from tests.simulation.drafter import Drafter
from tests.simulation.layers import LayerKV
from tests.simulation.target import Target
from tests.simulation.walk import (
    Proposal,
    Walk,
    accepted_in_chain,
    accepted_in_tree,
    completion_tokens,
    walk_steps,
)

#: Candidates kept per depth: the largest top-k a walk may ask for.
CANDIDATES = 32


@dataclass(frozen=True)
class Pair:
    """What a server is started with."""

    target: Target
    chat: Chat
    drafter: Drafter


@dataclass(frozen=True)
class Answer:
    """The target's greedy answer to one prompt.

    tokens: the answer and L more tokens, because the last verify step may run over the end.
    length: tokens of the answer itself, the stop token included.
    features: hidden states for the drafter, fp32 [prompt + len(tokens), layers * hidden].
    context: the drafter's keys and values made of them.
    proposals: filled as walks need them, by (anchor, block size, window); every walk over this answer shares them.
    """

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    length: int
    max_new_tokens: int
    features: Tensor
    context: list[LayerKV]
    proposals: dict[tuple[int, int, int | None], Proposal] = field(default_factory=dict)


def load_pair(target_dir: str | Path, drafter_dir: str | Path) -> Pair:
    """Load both models as fp32 on the CPU, and keep torch to one thread.

    Raises ValueError when the drafter's config does not fit the target or asks for what is not simulated.
    """
    # Steps of one token are bound by memory; beside a running server, threads that wait for each other cost
    # ten times more than they give.
    torch.set_num_threads(1)
    target_dir = Path(target_dir)
    pair = Pair(Target.load(target_dir), Chat(target_dir), Drafter.load(Path(drafter_dir)))
    layer_ids = pair.drafter.target_layer_ids
    # A server captures a layer's stream on entry to the next layer, so the last layer's cannot be had.
    if not all(0 <= i < pair.target.num_layers - 1 for i in layer_ids):
        raise ValueError(f"drafter config: target_layer_ids {layer_ids} must lie before the last target layer")
    return pair


@torch.inference_mode()
def greedy_answer(pair: Pair, prompt_ids: Sequence[int], max_new_tokens: int, ignore_eos: bool = False) -> Answer:
    """Answer `prompt_ids` greedily and collect what the drafter sees of it."""
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; set at least 1")
    stops = set() if ignore_eos else pair.chat.eos_token_ids
    tokens, length = _decode(pair, prompt_ids, max_new_tokens, stops)
    features = target_features(pair, [*prompt_ids, *tokens])
    return Answer(
        prompt_ids=tuple(prompt_ids),
        tokens=tuple(tokens),
        length=length,
        max_new_tokens=max_new_tokens,
        features=features,
        context=pair.drafter.context(features),
    )


def _decode(pair: Pair, prompt_ids: Sequence[int], limit: int, stops: set[int]) -> tuple[list[int], int]:
    """Greedy tokens, and the length of the answer among them; the others are the overrun of L tokens."""
    overrun = pair.drafter.block_size - 1
    tokens: list[int] = []
    length, cache, feed = None, None, list(prompt_ids)
    while length is None or len(tokens) < length + overrun:
        streams, cache = pair.target.forward(feed, cache)
        feed = [int(pair.target.logits(streams[-1][-1:]).argmax())]
        tokens += feed
        if length is None and (feed[0] in stops or len(tokens) == limit):
            length = len(tokens)
    return tokens, length


@torch.inference_mode()
def target_features(pair: Pair, ids: Sequence[int]) -> Tensor:
    """The hidden states that the drafter consumes, fp32 [len(ids), layers * hidden], in one pass.

    Layer id i means the residual stream behind layer i (the first layer is 0), before any norm.
    """
    streams = pair.target.forward(ids).streams
    return torch.cat([streams[i] for i in pair.drafter.target_layer_ids], dim=-1)


@torch.inference_mode()
def propose(pair: Pair, answer: Answer, anchor: int, block_size: int, window: int | None = None) -> Proposal:
    """The drafter's candidates behind token `anchor` of the answer, for `block_size - 1` depths.

    window: committed tokens that the drafter looks back; None for all of them.
    """
    key = (anchor, block_size, window)
    if key not in answer.proposals:
        block = [answer.tokens[anchor]] + [pair.drafter.mask_token_id] * (block_size - 1)
        # The root's own features do not exist yet: the target sees the root in the verify step to come.
        start = len(answer.prompt_ids) + anchor
        hidden = pair.drafter.block(pair.target.embedding[block], answer.context, start, window)
        best = (hidden[1:] @ pair.target.head.T).log_softmax(-1).topk(CANDIDATES, dim=-1)
        answer.proposals[key] = Proposal(best.indices.tolist(), best.values.tolist())
    return answer.proposals[key]


def walk(
    pair: Pair,
    answer: Answer,
    method: Literal["chain", "tree"],
    budget: int | None = None,
    top_k: int | None = None,
    block_size: int | None = None,
    length_first: bool = False,
    window: int | None = None,
) -> Walk:
    """Decode `answer` speculatively and count as a server does.

    method: "chain" verifies the best candidate of each depth, "tree" the best-first tree of `budget` nodes
        over the `top_k` best candidates of each depth.
    block_size: D, the root included; the drafter's own by default.
    length_first: see `completion_tokens`.
    window: see `propose`.
    """
    block_size = pair.drafter.block_size if block_size is None else block_size
    _check(pair, method, budget, top_k, block_size)

    def accepted_at(anchor: int) -> int:
        proposal = propose(pair, answer, anchor, block_size, window)
        truth = answer.tokens[anchor + 1 : anchor + block_size]
        if method == "chain":
            return accepted_in_chain(proposal, truth)
        return accepted_in_tree(proposal.top(top_k), truth, budget)

    accepted = walk_steps(answer.length, accepted_at)
    return Walk(accepted, completion_tokens(accepted, answer.length, answer.max_new_tokens, length_first))


def _check(pair: Pair, method: str, budget: int | None, top_k: int | None, block_size: int) -> None:
    if method not in ("chain", "tree"):
        raise ValueError(f"method is {method!r}; set 'chain' or 'tree'")
    if not 2 <= block_size <= pair.drafter.block_size:
        raise ValueError(f"block_size is {block_size}; set 2 to {pair.drafter.block_size}, the drafter's own")
    if method == "tree" and (budget is None or budget < 1):
        raise ValueError(f"budget is {budget}; set at least 1 for a tree")
    if method == "tree" and (top_k is None or not 1 <= top_k <= CANDIDATES):
        raise ValueError(f"top_k is {top_k}; set 1 to {CANDIDATES} for a tree")
