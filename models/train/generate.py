"""Let the target write: many prompts run in lock-step, rows that have stopped are dropped on the way."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from models.train.target import Cache, Target

_COMPACT_EVERY = 16

#: Chooses the next tokens [S] from logits [S, vocabulary].
Pick = Callable[[Tensor], Tensor]


def greedy(logits: Tensor) -> Tensor:
    """The target's own next tokens."""
    return logits.argmax(-1)


def sampler(generator: torch.Generator, top_k: int = 50) -> Pick:
    """Sampling at temperature 1 among the `top_k` most probable tokens."""

    def pick(logits: Tensor) -> Tensor:
        values, ids = logits.topk(top_k)
        chosen = torch.multinomial(values.softmax(-1), 1, generator=generator)
        return ids.gather(1, chosen)[:, 0]

    return pick


def batches(prompts: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Indices of prompts in lists of at most `size`, of similar prompt lengths; the lists come in any order."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    parts = [order[i : i + size] for i in range(0, len(order), size)]
    # Who stops early shall not stop before all long prompts.
    random.Random(0).shuffle(parts)
    return parts


def generate(
    target: Target,
    prompts: Sequence[Sequence[int]],
    limit: int,
    stops: Collection[int],
    pick: Pick,
    batch: int,
) -> Iterator[tuple[list[int], list[list[int]]]]:
    """Continue every prompt by at most `limit` tokens; a stop token ends a row and is part of it.

    Yields (indices of prompts, their new tokens) for one batch after the other.
    """
    for indices in batches(prompts, batch):
        width = max(len(prompts[i]) for i in indices)
        pad = torch.tensor([width - len(prompts[i]) for i in indices], device=target.device)
        ids = torch.tensor([[0] * (width - len(prompts[i])) + list(prompts[i]) for i in indices], device=target.device)
        yield indices, _rows(_lock_step(target, ids, pad, limit, stops, pick), stops)


@torch.inference_mode()
def _lock_step(target: Target, ids: Tensor, pad: Tensor, limit: int, stops: Collection[int], pick: Pick) -> Tensor:
    sequences, past = ids.shape
    cache = Cache(target, pad, past + limit)
    stop_ids = torch.tensor(sorted(stops), dtype=torch.long, device=target.device)
    written = torch.full((sequences, limit), -1, device=target.device)
    alive = torch.arange(sequences, device=target.device)
    running = torch.ones(sequences, dtype=torch.bool, device=target.device)
    # The norm and the head need the last position only.
    stream = target.forward(ids, cache)[0][:, -1]
    for step in range(limit):
        tokens = pick(target.logits(stream))
        written[alive, step] = tokens
        if stops:
            running &= ~torch.isin(tokens, stop_ids)
        if (step + 1) % _COMPACT_EVERY == 0 and not bool(running.all()):
            rows = running.nonzero()[:, 0]
            if not len(rows):
                break
            cache.keep(rows)
            alive, running, tokens = alive[rows], running[rows], tokens[rows]
        if step + 1 < limit:
            stream = target.forward(tokens[:, None], cache, past + step)[0][:, -1]
    return written


def _rows(written: Tensor, stops: Collection[int]) -> list[list[int]]:
    rows = []
    for row in written.tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
        rows.append(row[:end])
    return rows
