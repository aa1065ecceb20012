"""Keeps the penalizers' counts in step with what each request has committed.

Upstream the scheduler counts the last token that it knows of. Under overlap scheduling it launches a step before it
knows what the one before has committed, and a step of a tree commits several tokens. So the forward counts them
itself, at the start of the next step: before the scheduler may filter or merge the counts again.
"""

import torch

from sglang_ddtree.penalties import Penalties


class PenaltyTracker:
    """What each request committed in its last step, by row of the request pool; allocated on first use.

    A batch without penalties costs one look at a Python attribute.
    """

    def __init__(self, rows: int, block_size: int, device):
        self.shape, self.device = (rows, block_size), device
        self.tokens = None

    def prefilled(self, batch, tokens: torch.Tensor) -> None:
        """Note the first token of every request of a prefill, int [b]."""
        info = batch.sampling_info
        # The forward's copy of the sampling parameters has the sums of the penalizers instead of the penalizers.
        if info is not None and info.acc_additive_penalties is not None:
            self._note(batch.req_pool_indices, tokens[:, None], 1)

    def start(self, batch) -> Penalties | None:
        """Penalties of this step, with everything counted up to the root; None where no request has any."""
        if batch.spec_info.penalizers is None:
            return None
        self._allocate()
        penalties = Penalties.of(batch.spec_info.penalizers)
        penalties.count(self.tokens[batch.req_pool_indices], self.counts[batch.req_pool_indices])
        return penalties

    def committed(self, batch, accepted) -> None:
        """Note what a step with penalties committed."""
        self._note(batch.req_pool_indices, accepted.out_tokens, accepted.commit_lens)

    def _note(self, rows, tokens, counts) -> None:
        self._allocate()
        self.tokens[rows, : tokens.shape[1]] = tokens.to(self.tokens.dtype)
        self.counts[rows] = counts

    def _allocate(self) -> None:
        if self.tokens is None:
            self.tokens = torch.zeros(self.shape, dtype=torch.int64, device=self.device)
            # One token (0) of a request without penalties is counted at no weight.
            self.counts = torch.ones(self.shape[0], dtype=torch.int32, device=self.device)
