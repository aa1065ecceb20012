"""Proposals that hold the target's own next token at a random rank of each depth, for answers known beforehand.

A random target and drafter agree on nothing, so their trees are hardly walked. With these proposals accepted paths are
deep and scattered over the tree, whatever the models are. Used by the probe plugin and, to know the accept length that
a server must then report, by the tests: plain torch, nothing of SGLang.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

# Chance of the right token at each rank; what is left is the chance that no candidate is right.
RANK_CHANCES = (0.55, 0.2, 0.12, 0.08)
TOP_K = len(RANK_CHANCES)


@dataclass(frozen=True)
class Known:
    """One prompt and the greedy answer to it, which must be longer than what is asked for by one block."""

    prompt: list[int]
    answer: list[int]


def save(path: Path, known: list[Known], vocabulary: int, seed: int) -> None:
    """Write what the probe plugin reads."""
    entries = [{"prompt": one.prompt, "answer": one.answer} for one in known]
    path.write_text(json.dumps({"known": entries, "vocabulary": vocabulary, "seed": seed}))


class Oracle:
    """Tables of proposals by prompt and position of the root.

    log_probs: float32 [prompts, positions, L, TOP_K], descending.
    token_ids: int64 [prompts, positions, L, TOP_K], distinct within a depth.
    """

    def __init__(self, path: Path, depth: int, device: str = "cpu"):
        content = json.loads(Path(path).read_text())
        known = [Known(one["prompt"], one["answer"]) for one in content["known"]]
        self.numbers = {tuple(one.prompt): number for number, one in enumerate(known)}
        positions = max(len(one.prompt) + len(one.answer) for one in known)
        generator = torch.Generator().manual_seed(content["seed"])
        shape = (len(known), positions, depth, TOP_K)
        ids = [_ids(one, positions, depth, content["vocabulary"], generator) for one in known]
        self.token_ids = torch.stack(ids).to(device)
        log_probs = (1.5 * torch.randn(shape, generator=generator)).log_softmax(-1)
        self.log_probs = log_probs.sort(-1, descending=True).values.to(device)

    def proposals(self, prompts: list[list[int]], positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and tokens, both [b, L, TOP_K]; those of an unknown prompt mean nothing.

        positions: int64 [b] on the tables' device, where each request's root stands.
        """
        numbers = [self.numbers.get(tuple(prompt), 0) for prompt in prompts]
        numbers = torch.tensor(numbers, device="cpu").to(self.token_ids.device, non_blocking=True)
        at = positions.clamp(max=self.token_ids.shape[1] - 1)
        return self.log_probs[numbers, at].contiguous(), self.token_ids[numbers, at].contiguous()


def _ids(known: Known, positions: int, depth: int, vocabulary: int, generator) -> torch.Tensor:
    """int64 [positions, L, TOP_K]: the right token at its rank, distinct other tokens elsewhere."""
    text = torch.tensor([*known.prompt, *known.answer])
    after = torch.arange(positions)[:, None] + 1 + torch.arange(depth)
    truth = text[after.clamp(max=len(text) - 1)]
    chances = torch.tensor([*RANK_CHANCES, 1 - sum(RANK_CHANCES)])
    ranks = torch.multinomial(chances, truth.numel(), replacement=True, generator=generator).view(truth.shape)
    steps = torch.rand(positions, depth, vocabulary - 1, generator=generator).argsort(-1)[..., :TOP_K] + 1
    ids = (truth[..., None] + steps) % vocabulary
    right = torch.arange(TOP_K) == ranks[..., None]
    return torch.where(right, truth[..., None], ids)
