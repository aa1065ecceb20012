"""The answers to learn from, with all that a training step needs of the target, kept on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.train.target import MULTIPLE, Target

#: Tokens of one pass of the target, and rows of one slice of its logits.
_PASS_TOKENS = {"cuda": 131072, "cpu": 2048}
_LOGIT_ROWS = {"cuda": 16384, "cpu": 512}


@dataclass(frozen=True)
class Conversation:
    """One prompt and the target's answer to it, as token ids."""

    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Batch:
    """S conversations, padded to T positions.

    tokens [S, T] int64; features [S, T, F]; begin, end [S]: positions of the answer's first token and of the
    one behind its last; teacher_ids, teacher_probs [S, T, K]: the target's most probable tokens for each
    position, given all before it, the probabilities scaled to the sum 1 (undefined outside the answer).
    """

    tokens: Tensor
    features: Tensor
    begin: Tensor
    end: Tensor
    teacher_ids: Tensor
    teacher_probs: Tensor


class Corpus:
    """Conversations laid out one behind the other: row `offset[i] + p` belongs to position p of number i."""

    def __init__(self, target: Target, talks: Sequence[Conversation], layers: tuple[int, ...], top_k: int) -> None:
        device, self._ids = target.device, [talk.prompt + talk.answer for talk in talks]
        lengths = torch.tensor([len(ids) for ids in self._ids])
        self.offset = (lengths.cumsum(0) - lengths).to(device)
        self.begin = torch.tensor([len(talk.prompt) for talk in talks], device=device)
        self.end, self._lengths = lengths.to(device), lengths
        self.total = int(lengths.sum())
        self.answer_tokens = sum(len(talk.answer) for talk in talks)
        width = len(layers) * target.embedding.shape[1]
        self._tokens = torch.tensor([token for ids in self._ids for token in ids], dtype=torch.int32, device=device)
        self._features = torch.empty(self.total, width, dtype=target.dtype, device=device)
        self._teacher_ids = torch.zeros(self.total, top_k, dtype=torch.int32, device=device)
        self._teacher_probs = torch.zeros(self.total, top_k, dtype=target.dtype, device=device)
        self._fill(target, layers, lengths.tolist())

    def __len__(self) -> int:
        return len(self._ids)

    def _fill(self, target: Target, layers: tuple[int, ...], lengths: list[int]) -> None:
        budget = _PASS_TOKENS[target.device.type]
        order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        while order:
            size = max(1, budget // lengths[order[0]])
            chosen, order = torch.tensor(order[:size]), order[size:]
            rows, inside = self._rows(chosen)
            numbers = chosen.to(target.device)
            stream, features = target.forward(self._tokens[rows].long(), collect=layers)
            self._features[rows[inside]] = features[inside]
            # What the target says behind position p is about position p + 1.
            positions = torch.arange(rows.shape[1], device=target.device)
            says = inside & (positions >= self.begin[numbers, None] - 1) & (positions < self.end[numbers, None] - 1)
            self._ask(target, stream[says], rows[says] + 1)

    def _ask(self, target: Target, stream: Tensor, rows: Tensor) -> None:
        step, top_k = _LOGIT_ROWS[target.device.type], self._teacher_ids.shape[1]
        for i in range(0, len(rows), step):
            values, ids = target.logits(stream[i : i + step]).topk(top_k)
            self._teacher_ids[rows[i : i + step]] = ids.int()
            self._teacher_probs[rows[i : i + step]] = values.softmax(-1).to(target.dtype)

    def _rows(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the conversations `numbers` [S] (on the CPU) by position, and which are theirs: both [S, T]."""
        # The lengths on the CPU say it without waiting for the device.
        width = int(self._lengths[numbers].max())
        width += -width % MULTIPLE
        positions = torch.arange(width, device=self.end.device)
        numbers = numbers.to(self.end.device)
        inside = positions < self.end[numbers, None]
        return self.offset[numbers, None] + torch.where(inside, positions, 0), inside

    def batch(self, numbers: Tensor) -> Batch:
        """The conversations `numbers` [S] (on the CPU); padded positions repeat the first one's row."""
        rows, _ = self._rows(numbers)
        numbers = numbers.to(self.end.device)
        return Batch(
            self._tokens[rows].long(),
            self._features[rows],
            self.begin[numbers],
            self.end[numbers],
            self._teacher_ids[rows].long(),
            self._teacher_probs[rows],
        )
