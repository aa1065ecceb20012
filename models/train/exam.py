"""Accept lengths of a drafter on questions that it has not seen, counted as the simulation counts them.

The simulation answers one question at a time on the CPU; here all of them run at once, in fp32, and every
token of an answer is an anchor. The walk over them is the simulation's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.train.corpus import Conversation, Corpus
from models.train.drafter import Drafter
from models.train.generate import generate, greedy
from models.train.target import Target
from tests.simulation.chat import Chat
from tests.simulation.walk import Proposal, accepted_in_chain, accepted_in_tree, walk_steps

BUDGETS = (4, 8, 16, 32)
_TOP_K = 8
#: Anchors of one pass: their logits are [anchors * L, vocabulary].
_ANCHORS = {"cuda": 4096, "cpu": 128}


class Exam:
    """Questions with the target's greedy answers of at most `limit` tokens."""

    def __init__(
        self, target: Target, chat: Chat, questions: Sequence[str], drafter: Drafter, limit: int, batch: int
    ) -> None:
        """target: fp32, as is all of an exam. The drafter says which layers it reads and how far it drafts."""
        self._head, self._embedding, self._drafter = target.head, target.embedding, drafter
        prompts = [chat.prompt_ids(question) for question in questions]
        # The last verify step may run over the end, so the answers are written L tokens further.
        written: dict[int, list[int]] = {}
        for indices, rows in generate(target, prompts, limit + drafter.block_size - 1, (), greedy, batch):
            written.update(zip(indices, rows, strict=True))
        self._answers = [written[i] for i in range(len(prompts))]
        ends = [
            next((i + 1 for i, token in enumerate(answer) if token in chat.eos_token_ids), limit)
            for answer in self._answers
        ]
        self._lengths = [min(end, limit) for end in ends]
        talks = [Conversation(*talk) for talk in zip(prompts, self._answers, strict=True)]
        self._corpus = Corpus(target, talks, drafter.layer_ids, top_k=1)

    def __len__(self) -> int:
        return len(self._answers)

    def take(self, weights: dict[str, Tensor], budgets: Sequence[int] = BUDGETS) -> dict[str, float]:
        """Completion tokens per verify step of `chain` and `tree<budget>`, all answers together, and `loss`.

        weights: the drafter's, rounded to bf16 here as in its file. loss: mean negative log-likelihood of the
        answers' tokens over all anchors and depths, in nats.
        """
        rounded = {name: w.detach().bfloat16().float() for name, w in weights.items()}
        drafter = Drafter(self._drafter.config, rounded, self._embedding, torch.float32)
        steps, loss, counted = dict.fromkeys(("chain", *(f"tree{budget}" for budget in budgets)), 0), 0.0, 0
        for number, length in enumerate(self._lengths):
            if length < 2:
                continue
            proposals, losses = self._propose(drafter, number, length - 1)
            loss, counted = loss + float(losses.sum()), counted + losses.numel()
            for name in steps:
                steps[name] += self._steps(name, proposals, number, length)
        total = sum(self._lengths)
        return {name: total / max(count, 1) for name, count in steps.items()} | {"loss": loss / max(counted, 1)}

    def _steps(self, name: str, proposals: list[Proposal], number: int, length: int) -> int:
        answer, depth = self._answers[number], self._drafter.block_size - 1

        def accepted_at(anchor: int) -> int:
            truth = answer[anchor + 1 : anchor + 1 + depth]
            if name == "chain":
                return accepted_in_chain(proposals[anchor], truth)
            return accepted_in_tree(proposals[anchor], truth, int(name.removeprefix("tree")))

        return len(walk_steps(length, accepted_at))

    @torch.inference_mode()
    def _propose(self, drafter: Drafter, number: int, count: int) -> tuple[list[Proposal], Tensor]:
        """Proposals at the first `count` tokens of an answer, and losses [count, L]."""
        batch = self._corpus.batch(torch.tensor([number]))
        proposals, losses, step = [], [], _ANCHORS[batch.tokens.device.type]
        for first in range(0, count, step):
            anchors = batch.begin[:, None] + torch.arange(first, min(first + step, count), device=batch.begin.device)
            hidden = drafter.hidden(batch.tokens, batch.features, anchors)[0, :, 1:]
            says = (hidden @ self._head.T).log_softmax(-1)
            positions = anchors[0, :, None] + torch.arange(1, drafter.block_size, device=anchors.device)
            losses.append(-says.gather(2, batch.tokens[0, positions].unsqueeze(-1))[:, :, 0])
            best = says.topk(min(_TOP_K, says.shape[-1]), dim=-1)
            proposals += map(Proposal, best.indices.tolist(), best.values.tolist())
        return proposals, torch.cat(losses)
