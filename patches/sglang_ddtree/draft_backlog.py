"""The drafter's KV of steps without speculation, written later and for many tokens at once.

A step that does not draft still has to leave the drafter a complete context, or it could not resume. Written at once,
that reads the drafter's projections for a single token of each request, about 2% of such a step for a drafter of 2.5%
of the target's weights. A few steps' worth costs little more than one.
"""

import torch

STEPS = 16


class DraftBacklog:
    """Hidden states of tokens whose drafter KV is not written yet, all of the same requests.

    `add` after a step without speculation and `flush` before anything else runs: other requests may be given slots
    that a request of the backlog has left, and the drafter reads them.
    """

    def __init__(self, append):
        """Args: `append(target_hidden=[n, F], cache_loc=int64 [n], positions=int64 [n])` writes the drafter's KV."""
        self.append = append
        self.requests: list[str] = []
        self.hidden = None
        self.slots: list[torch.Tensor] = []
        self.positions: list[torch.Tensor] = []

    def follows(self, batch) -> bool:
        """Whether a step of this batch may add to what is there."""
        return not self.slots or self.requests == [req.rid for req in batch.reqs]

    def add(self, batch, hidden: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """Keep one token of each request; the batch must follow.

        Args:
            hidden: [b, F], copied: the next step overwrites it.
            slots, positions: int64 [b], kept.
        """
        if not self.slots:
            self.requests = [req.rid for req in batch.reqs]
            self._fit(hidden)
        done = len(self.slots) * len(hidden)
        self.hidden[done : done + len(hidden)].copy_(hidden)
        self.slots.append(slots)
        self.positions.append(positions)
        if len(self.slots) == STEPS:
            self.flush()

    def _fit(self, hidden: torch.Tensor) -> None:
        rows = STEPS * len(hidden)
        if self.hidden is None or len(self.hidden) < rows:
            self.hidden = hidden.new_empty(rows, hidden.shape[1])

    def flush(self) -> None:
        """Write the KV of what is there."""
        if not self.slots:
            return
        slots, positions = torch.cat(self.slots), torch.cat(self.positions)
        self.slots, self.positions = [], []
        self.append(target_hidden=self.hidden[: len(slots)], cache_loc=slots, positions=positions)
