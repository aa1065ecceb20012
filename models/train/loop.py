"""The training loop: as many steps as fit into its time, the learning rate following the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from models.train.corpus import Corpus
from models.train.drafter import Drafter
from models.train.loss import HeadLoss, labels, sample_anchors

_WARM_UP_STEPS = 50
_CLIP = 1.0


@dataclass(frozen=True)
class Pace:
    """How to train: S sequences of `anchors` anchors a step, peak learning rate, seconds or steps in total."""

    sequences: int
    anchors: int
    rate: float
    soft: float
    seconds: float
    steps: int | None = None
    save_every: float = 60.0

    def within(self, seconds: float) -> Pace:
        """The same pace for another time."""
        return replace(self, seconds=seconds)


class Trainer:
    """Weights, optimiser and place in the data; `state` and `restore` carry all of it over an interruption."""

    def __init__(self, drafter: Drafter, corpus: Corpus, head: Tensor, pace: Pace, seed: int) -> None:
        self.drafter, self.step, self.progress, self.loss = drafter, 0, 0.0, math.nan
        self._corpus, self._pace = corpus, pace
        self._head = head.to(drafter.dtype)
        self._generator = torch.Generator(head.device).manual_seed(seed)
        self._seed = seed
        for weight in drafter.weights.values():
            weight.requires_grad_()
        self._optimiser = torch.optim.AdamW(
            drafter.weights.values(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01, fused=head.is_cuda
        )

    def run(self, save: Callable[[Trainer], None]) -> None:
        """Train until time or steps are used up; `save` is called every `save_every` seconds and at the end."""
        begun = saved = time.monotonic()
        before, numbers = self.progress, self._numbers()
        recent: list[Tensor] = []
        if self.progress >= 1:
            save(self)
        while self.progress < 1:
            recent.append(self._one_step(next(numbers)))
            now = time.monotonic()
            self.progress = before + (1 - before) * min(1.0, (now - begun) / self._pace.seconds)
            if self._pace.steps:
                self.progress = max(self.progress, self.step / self._pace.steps)
            if now - saved >= self._pace.save_every or self.progress >= 1:
                self.loss, recent = float(torch.stack(recent).mean()), []
                save(self)
                saved = time.monotonic()

    def _one_step(self, numbers: Tensor) -> Tensor:
        pace, drafter = self._pace, self.drafter
        batch = self._corpus.batch(numbers)
        anchors = sample_anchors(batch, pace.anchors, self._generator)
        ids, shares, weights = labels(batch, anchors, drafter.block_size, pace.soft)
        hidden = drafter.hidden(batch.tokens, batch.features, anchors)[:, :, 1:]
        loss = HeadLoss.apply(
            hidden.flatten(0, 2), self._head, ids.flatten(0, 2), shares.flatten(0, 2), weights.flatten()
        )
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.weights.values(), _CLIP)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate()
        self._optimiser.step()
        self.step += 1
        return loss.detach()

    def _rate(self) -> float:
        warm = min(1.0, (self.step + 1) / _WARM_UP_STEPS)
        return self._pace.rate * warm * 0.5 * (1 + math.cos(math.pi * min(self.progress, 1.0)))

    def _numbers(self) -> Iterator[Tensor]:
        """Numbers of conversations [S], each epoch in another order; begins where `step` stands."""
        size = min(self._pace.sequences, len(self._corpus))
        per_epoch = len(self._corpus) // size
        step = self.step
        while True:
            epoch, place = divmod(step, per_epoch)
            if place == 0 or step == self.step:
                shuffle = torch.Generator().manual_seed(self._seed + epoch)
                order = torch.randperm(len(self._corpus), generator=shuffle)
            yield order[place * size : (place + 1) * size]
            step += 1

    def facts(self) -> dict[str, float]:
        """Pace and state for the report; an epoch has drawn each conversation once."""
        epochs = self.step * min(self._pace.sequences, len(self._corpus)) / len(self._corpus)
        state = {"steps": self.step, "progress": self.progress, "loss": self.loss, "epochs": epochs}
        return asdict(self._pace) | {name: round(value, 4) for name, value in state.items()}

    def store(self, path: Path) -> None:
        """Write all that `restore` needs."""
        state = {
            "step": self.step,
            "progress": self.progress,
            "loss": self.loss,
            "weights": {name: w.detach() for name, w in self.drafter.weights.items()},
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
        }
        aside = path.with_suffix(".new")
        torch.save(state, aside)
        aside.replace(path)

    def restore(self, path: Path) -> None:
        """Go on where `store` left off."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.step, self.progress, self.loss = state["step"], state["progress"], state["loss"]
        with torch.no_grad():
            for name, weight in self.drafter.weights.items():
                weight.copy_(state["weights"][name])
        self._optimiser.load_state_dict(state["optimiser"])
        self._generator.set_state(state["generator"])
