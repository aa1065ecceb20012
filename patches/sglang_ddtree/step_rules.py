"""What the requests of one step ask of the choice at each node beside temperature and the like."""

import torch
from sglang.srt.layers.sampler import apply_custom_logit_processor

from sglang_ddtree.grammar import GrammarMask, TreeOnHost


class StepRules:
    """Penalties, grammars, biases and custom processors of one decode step, in the order of a plain step.

    Make it before anything of the step is launched, call `drafted` before the verify pass, `apply` after it and
    `committed` at the end. Where the batch uses none of them, each call only looks at Python attributes.
    """

    def __init__(self, batch, tracker, grammar_barrier=None):
        """
        Args:
            batch: the scheduler's batch.
            tracker: the worker's `PenaltyTracker`.
            grammar_barrier: brings the grammars up to what the last step committed, None where the scheduler
                has done so.
        """
        self.batch, self.tracker, self.grammar_barrier = batch, tracker, grammar_barrier
        self.penalties = tracker.start(batch)

    def drafted(self, tree) -> None:
        """Take note of the trees that are going to be verified."""
        self.tree = tree
        self.tree_on_host = TreeOnHost(tree) if self.batch.has_grammar else None

    def apply(self, logits: torch.Tensor, settings) -> None:
        """Change the logits [b * W, V] of every node, in place.

        The scheduler's own sums of penalties (`acc_...` of the sampling parameters) lack the tokens on a node's
        path and are not used.
        """
        info = self.batch.sampling_info
        if info is None:
            return
        nodes = logits.view(-1, settings.width, logits.shape[-1])
        if self.penalties is not None:
            self.penalties.apply(nodes, self.tree, settings.depth)
        if self.tree_on_host is not None:
            self._grammar_mask(info.vocab_size).apply(nodes)
        if info.logit_bias is not None:
            nodes.add_(info.logit_bias[:, None])
        if info.has_custom_logit_processor:
            apply_custom_logit_processor(logits, info, num_tokens_in_batch=settings.width)

    def _grammar_mask(self, vocab_size: int) -> GrammarMask:
        if self.grammar_barrier is not None:
            self.grammar_barrier()
        return GrammarMask([req.grammar for req in self.batch.reqs], self.tree_on_host, vocab_size)

    def committed(self, accepted) -> None:
        """Take note of what the step committed."""
        if self.penalties is not None:
            self.tracker.committed(self.batch, accepted)

    def keep_alive(self) -> list | None:
        """What the scheduler may replace, and thereby free, while the step still reads it."""
        return None if self.penalties is None else [self.penalties]
