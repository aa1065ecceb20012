"""Accept length from what a server reports for each request, and how far its metrics may differ from that.

Three figures exist and they are not the same quantity:

* per request, `completion tokens / verify steps`: counts the token of the prefill, and leaves out what the
  last step accepted beyond the end of the answer. SGLang's `spec_accept_length`, and what windows bound;
* per step, `(verify steps + accepted drafts) / verify steps`: what a step commits, the bonus token included;
* the gauge `sglang:spec_accept_length`: the second figure over the scheduler's last few dozen steps only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .client import Answer
from .pair import Expected
from .verdict import ProbeError, expect

FIELDS = ("spec_verify_ct", "spec_num_correct_drafts", "spec_accept_length", "spec_correct_drafts_histogram")


@dataclass(frozen=True)
class Acceptance:
    """Counts of one request, or of several added up.

    tokens: completion tokens. steps: target steps that verified drafts. drafts: drafted tokens accepted.
    histogram: entry i is the number of steps that accepted exactly i drafts.
    """

    tokens: int
    steps: int
    drafts: int
    histogram: tuple[int, ...]

    @property
    def accept_length(self) -> float:
        """Completion tokens per target step."""
        return self.tokens / self.steps

    @property
    def committed_per_step(self) -> float:
        """Tokens that one target step commits on average, the bonus token included."""
        return (self.steps + self.drafts) / self.steps

    @property
    def step_deviation(self) -> float:
        """Standard deviation of the tokens that single steps commit."""
        mean = self.drafts / self.steps
        return math.sqrt(sum(count * (i - mean) ** 2 for i, count in enumerate(self.histogram)) / self.steps)


def of_request(answer: Answer) -> Acceptance:
    """Counts of one request from its `meta_info`.

    Raises ProbeError when a field is missing or contradicts another.
    """
    meta = answer.meta or {}
    missing = [field for field in FIELDS if field not in meta]
    expect(
        not missing,
        f"accept length in meta_info of a request with {answer.completion_tokens} tokens",
        f"no {', '.join(missing)}",
        "a server that decodes without its drafter, although it names an algorithm",
    )
    steps, drafts, reported, histogram = (meta[field] for field in FIELDS)
    counts = Acceptance(answer.completion_tokens, steps, drafts, tuple(histogram))
    # A request that was pushed out and taken back in was prefilled again, and got a token of that.
    _expect_consistent(counts, reported, prefills=1 + meta.get("num_retractions", 0))
    return counts


def _expect_consistent(counts: Acceptance, reported: float, prefills: int) -> None:
    likely = "a fault in how the worker returns accepted tokens (result stride or accept lengths)"
    expect(
        math.isclose(reported, counts.accept_length, rel_tol=1e-6),
        f"spec_accept_length = {counts.tokens} tokens / {counts.steps} steps = {counts.accept_length:.4f}",
        f"{reported:.4f}",
        likely,
    )
    in_histogram = (sum(counts.histogram), sum(i * count for i, count in enumerate(counts.histogram)))
    expect(
        in_histogram == (counts.steps, counts.drafts),
        f"a histogram over {counts.steps} steps with {counts.drafts} accepted drafts",
        f"one over {in_histogram[0]} steps with {in_histogram[1]}",
        likely,
    )
    # Each prefill gives one token; only the last step may commit more than the answer has room for.
    surplus = prefills + counts.steps + counts.drafts - counts.tokens
    expect(
        0 <= surplus < len(counts.histogram),
        f"{counts.tokens} tokens from {prefills} prefill, {counts.steps} steps, {counts.drafts} drafts",
        f"a surplus of {surplus}",
        likely,
    )


def added(requests: Iterable[Acceptance]) -> Acceptance:
    """The counts of several requests as if they were one."""
    counts = list(requests)
    width = max(len(c.histogram) for c in counts)
    padded = [c.histogram + (0,) * (width - len(c.histogram)) for c in counts]
    return Acceptance(
        tokens=sum(c.tokens for c in counts),
        steps=sum(c.steps for c in counts),
        drafts=sum(c.drafts for c in counts),
        histogram=tuple(map(sum, zip(*padded, strict=True))),
    )


def expected_for(recorded: Sequence[Expected], algorithm: str, budget: int | None, top_k: int | None) -> Expected:
    """What is recorded for an engine. Raises ProbeError when nothing, or no single entry, is.

    top_k: None where the server does not publish it: then algorithm and budget must decide alone.
    """
    engine = f"{algorithm} budget {budget} top-k {'unpublished' if top_k is None else top_k}"
    fitting = [
        r
        for r in recorded
        if (r.algorithm, r.budget) == (algorithm, budget) and (top_k is None or r.top_k in (None, top_k))
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ProbeError(
            f"expected one recorded accept length for {engine}; came {len(fitting)} that differ in top-k only; "
            "likely a server that does not publish ddtree_top_k in /server_info"
        )
    known = ", ".join(f"{r.algorithm} {r.budget}/{r.top_k}" for r in recorded) or "none"
    raise ProbeError(
        f"expected a recorded accept length for {engine}; came none (recorded: {known}); "
        "likely settings that were never validated: measure them and add them to the pair's file"
    )


def window(recorded: float, tolerance: float) -> tuple[float, float]:
    """Both bounds of an accept length; `tolerance` is the share that it may differ by."""
    return round(recorded * (1 - tolerance), 3), round(recorded * (1 + tolerance), 3)


def gauge_band(requests: Sequence[Acceptance], interval: int) -> tuple[float, float] | None:
    """Bounds (low, high) for the gauge after `requests` ran one by one, None when they were too short.

    interval: steps over which the scheduler averages. Its last average covers `interval` consecutive steps
    that ended less than `interval` steps ago: steps of the last requests that hold 2 * interval together.
    The band is four standard errors wide on either side: a mean over 40 steps scatters, a wrong gauge is
    far off.
    """
    tail: list[Acceptance] = []
    for counts in reversed(requests):
        tail.append(counts)
        if sum(c.steps for c in tail) >= 2 * interval:
            recent = added(tail)
            slack = 4 * recent.step_deviation / math.sqrt(interval) + 0.05
            return recent.committed_per_step - slack, recent.committed_per_step + slack
    return None
