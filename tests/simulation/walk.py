"""How many drafts a verify step accepts, and how a server counts the steps of one answer.

Terms: the anchor of a step is the index, in the answer, of the last committed token, which is the root of
the block. The drafter proposes tokens for depths 1..L, that is for answer indices anchor+1..anchor+L. A step
that accepts n drafts commits n + 1 tokens: the drafts and the bonus token of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.simulation.tree import ROOT, best_first_tree


@dataclass(frozen=True)
class Proposal:
    """What the drafter proposes at one anchor: `tokens[d][r]` and `logprobs[d][r]` for depth d+1, rank r."""

    tokens: list[list[int]]
    logprobs: list[list[float]]

    def top(self, top_k: int) -> Proposal:
        """The same proposal with only the `top_k` best candidates of each depth."""
        return Proposal([row[:top_k] for row in self.tokens], [row[:top_k] for row in self.logprobs])


@dataclass(frozen=True)
class Walk:
    """One answer, decoded speculatively.

    accepted: drafts accepted by each verify step, the last one not cut at the end of the answer (SGLang's
        `spec_num_correct_drafts` and its histogram count so).
    committed: completion tokens that the server returns, SGLang's `completion_tokens`: the token that prefill
        gave and the stop token are counted, tokens of the last step beyond the end are not.
    """

    accepted: tuple[int, ...]
    committed: int

    @property
    def steps(self) -> int:
        """Verify steps of the target, SGLang's `spec_verify_ct`; prefill is none."""
        return len(self.accepted)

    @property
    def accept_length(self) -> float | None:
        """SGLang's `meta_info["spec_accept_length"]`; None, as there, when prefill alone ended the answer."""
        return self.committed / self.steps if self.steps else None

    @property
    def tokens_per_step(self) -> float | None:
        """Drafts plus bonus per verify step, nothing cut and prefill left out.

        SGLang logs this as `accept len` and exports it as the gauge `sglang:spec_accept_length`, averaged
        over a logging interval and, under overlap scheduling, with the step in flight when a request ends.
        """
        return sum(self.accepted) / self.steps + 1 if self.steps else None


def pooled_accept_length(walks: Iterable[Walk]) -> float:
    """Completion tokens of all answers per verify step of all answers."""
    walks = list(walks)
    return sum(w.committed for w in walks) / sum(w.steps for w in walks)


def accepted_in_chain(proposal: Proposal, truth: Sequence[int]) -> int:
    """Length of the longest prefix in which each depth's best candidate is the target's token."""
    count = 0
    for candidates, token in zip(proposal.tokens, truth, strict=True):
        if candidates[0] != token:
            break
        count += 1
    return count


def accepted_in_tree(proposal: Proposal, truth: Sequence[int], budget: int) -> int:
    """Depth of the deepest node whose path from the root is what the target says."""
    nodes = best_first_tree(proposal.logprobs, budget)
    child = {
        (node.parent, proposal.tokens[node.depth - 1][node.rank]): index
        for index, node in enumerate(nodes)
        if index != ROOT
    }
    at, depth = ROOT, 0
    for token in truth:
        if (at, token) not in child:
            break
        at, depth = child[at, token], depth + 1
    return depth


def walk_steps(length: int, accepted_at: Callable[[int], int]) -> tuple[int, ...]:
    """Drafts accepted by each verify step until `length` tokens are committed.

    The first token comes from prefill and costs no step. `accepted_at(anchor)` says how many drafts the step
    with that anchor accepts.
    """
    committed, accepted = 1, []
    while committed < length:
        accepted.append(accepted_at(committed - 1))
        committed += accepted[-1] + 1
    return tuple(accepted)


def completion_tokens(accepted: Sequence[int], length: int, max_new_tokens: int, length_first: bool) -> int:
    """Completion tokens that a server returns for an answer of `length` tokens (stop token included).

    A server that looks for the stop token first returns `length`. One that looks at the token limit first
    (`length_first`; SGLang 0.5.16 does, 0.5.23 does not) returns `max_new_tokens` when its last step runs
    over both, with tokens behind the stop token.
    """
    overrun = 1 + sum(accepted) + len(accepted)
    return max_new_tokens if length_first and overrun >= max_new_tokens else length
