"""Accept length is reported for each request, inside the validated windows, and the same in the metrics."""

import statistics

import pytest

from . import acceptance
from .facts import Facts
from .speculation import Run
from .verdict import ProbeError, expect

SCHEDULER_TOLERANCE = 0.05
# Tokens of other requests, as a share of the probe's own, up to which the comparison means something.
OTHERS_SHARE = 0.10
RENAMED = "a metric that this SGLang version calls otherwise"
AR = "the server runs without speculation (AR): there is no accept length"


@pytest.fixture
def run(target, answered) -> Run:
    if target.facts.algorithm is None:
        pytest.skip(AR)
    return answered


@pytest.fixture
def counts(run) -> dict[str, list[acceptance.Acceptance]]:
    try:
        return run.counts()
    except ProbeError:
        pytest.skip("not judged: the requests report no usable accept length, see accept_length_reported")


@pytest.fixture
def total(counts) -> acceptance.Acceptance:
    return acceptance.added(c for group in counts.values() for c in group)


def test_accept_length_reported(run, evidence):
    total = acceptance.added(c for group in run.counts().values() for c in group)
    evidence.say(
        f"{len(run.asked)} requests: {total.tokens} tokens in {total.steps} steps, "
        f"at most {len(total.histogram)} in one",
        tokens=total.tokens,
        steps=total.steps,
        histogram=list(total.histogram),
    )


def test_accept_length_in_window(target, run, counts, total, evidence):
    speed = run.tokens_per_second
    evidence.say("", accept_length=total.accept_length, tokens_per_second=speed)
    judge(target.acceptance, target.facts, counts, evidence, f"{total.accept_length:.3f} in all, {speed:.1f} tok/s")


@pytest.mark.full
def test_accept_length_sampled(target, server, expected, evidence):
    facts = target.facts
    if facts.algorithm is None:
        pytest.skip(AR)
    asked = expected.acceptance["sampled"]
    if not any((row.algorithm, row.budget) == (facts.algorithm, facts.budget) for row in asked.expected):
        pytest.skip(f"nothing is recorded at temperature {asked.temperature:g} for this engine, only at 0")
    counts = Run(server, asked).counts()
    judge(asked, facts, counts, evidence, f"at temperature {asked.temperature:g}")


def judge(asked, facts: Facts, counts, evidence, remark: str) -> None:
    """Raises ProbeError for the first category outside its window."""
    measured = {category: acceptance.added(group).accept_length for category, group in counts.items()}
    evidence.say("", by_category={category: round(length, 4) for category, length in measured.items()})
    try:
        recorded = acceptance.expected_for(asked.expected, facts.algorithm, facts.budget, facts.top_k)
    except ProbeError as unrecorded:
        lengths = ", ".join(f"{category} {length:.3f}" for category, length in measured.items())
        raise ProbeError(f"{unrecorded} (this run measured {lengths})") from None
    windows = {c: acceptance.window(recorded.accept_lengths[c], asked.tolerance) for c in measured}
    seen = ", ".join(f"{c} {measured[c]:.3f} in [{low}, {high}]" for c, (low, high) in windows.items())
    evidence.say(f"{seen}; {remark}", windows={c: list(bounds) for c, bounds in windows.items()})
    for category, (low, high) in windows.items():
        wanted = f"accept length of {category} in [{low}, {high}] for {facts.algorithm} budget {facts.budget}"
        length = measured[category]
        expect(
            length >= low,
            wanted,
            f"{length:.3f}, too low",
            "another drafter, wrong target layers or mask token, or wrong positions in the draft",
        )
        expect(
            length <= high,
            wanted,
            f"{length:.3f}, too high",
            "looping text, or a verification that accepts what the target would not say",
        )


def test_tree_beats_chain(target, counts, evidence):
    facts = target.facts
    if facts.kind != "tree":
        pytest.skip(f"the server runs a {facts.kind}: there is no tree to compare")
    chains = [row for row in target.acceptance.expected if row.is_chain_of(facts.block_size)]
    if facts.budget < facts.block_size - 1:
        pytest.skip(f"a tree of {facts.budget} nodes has fewer than the chain's {facts.block_size - 1}")
    if not chains:
        pytest.skip(f"no accept length of the chain with block size {facts.block_size} is recorded for this pair")
    chain = statistics.mean(chains[0].accept_lengths.values())
    tree = statistics.mean(acceptance.added(group).accept_length for group in counts.values())
    evidence.say(f"tree {tree:.3f}, chain's recorded {chain:.3f} tokens per step", tree=tree, chain=chain)
    expect(
        tree > chain,
        f"more tokens per step than the chain's recorded {chain:.3f}",
        f"{tree:.3f}",
        "a tree whose branches are never accepted (mask, positions or KV moves), or too small a budget",
    )


def test_accept_length_in_metrics(target, run, counts, total, evidence):
    expect(
        run.before is not None and run.after is not None,
        "metrics at /metrics",
        "none",
        "a server started without --enable-metrics",
    )
    counters = accept_length_in_counters(run, total)
    scheduler = per_step_in_scheduler(run)
    # With overlap scheduling the scheduler runs up to one step more for each request than the request sees, and
    # a step that serves another request as well commits tokens for both.
    tolerance = SCHEDULER_TOLERANCE + len(run.asked) / total.steps + run.tokens_of_others / total.tokens
    expect(
        abs(scheduler / total.committed_per_step - 1) <= tolerance,
        f"{total.committed_per_step:.3f} tokens per step in the scheduler, within {tolerance:.0%}",
        f"{scheduler:.3f}",
        "accepted drafts that are counted otherwise than committed",
    )
    gauge = checked_gauge(target.facts, run, [c for group in counts.values() for c in group])
    evidence.say(
        f"requests {total.accept_length:.3f}, counters {counters:.3f}; "
        f"per step {total.committed_per_step:.3f}, scheduler {scheduler:.3f}; gauge {gauge}",
        counters_accept_length=counters,
        scheduler_per_step=scheduler,
        requests_per_step=total.committed_per_step,
    )


def accept_length_in_counters(run: Run, total: acceptance.Acceptance) -> float:
    """Accept length from the counters of finished requests: exactly the requests' own when no others ran.

    Others are allowed for, as a health check is a request too, but skip the probe when they weigh too much.
    """
    others = run.grown("sglang:num_requests_total") - len(run.asked)
    tokens, steps = run.grown("sglang:generation_tokens_total"), run.grown("sglang:spec_verify_calls_total")
    if others > 0 and run.tokens_of_others > total.tokens * OTHERS_SHARE:
        pytest.skip(f"not comparable: {others:.0f} other requests took {run.tokens_of_others:.0f} tokens meanwhile")
    tolerance = OTHERS_SHARE if others > 0 else 1e-9
    expect(
        tokens >= total.tokens and steps >= total.steps and abs(tokens / steps / total.accept_length - 1) <= tolerance,
        f"counters to grow by the requests' {total.tokens} tokens in {total.steps} verify steps",
        f"{tokens:.0f} in {steps:.0f}, with {others:.0f} other requests",
        "metrics that lose requests or count them twice",
    )
    return tokens / steps


def per_step_in_scheduler(run: Run) -> float:
    """Tokens per decode step from the scheduler's own counters, which know nothing of requests."""
    tokens = run.grown("sglang:realtime_tokens_total", mode="decode")
    passes = run.grown("sglang:cuda_graph_passes_total", mode="decode")
    expect(passes > 0, "decode passes in sglang:cuda_graph_passes_total", "none", RENAMED)
    return tokens / passes


def checked_gauge(facts: Facts, run: Run, requests: list[acceptance.Acceptance]) -> str:
    """The gauge `sglang:spec_accept_length` as text.

    Raises ProbeError when it contradicts the last requests.
    """
    values = run.after.values("sglang:spec_accept_length")
    expect(bool(values), "the gauge sglang:spec_accept_length", "none", RENAMED)
    band = acceptance.gauge_band(requests, facts.log_interval)
    if band is None or facts.replicas > 1:
        return f"{max(values):.2f} (not judged)"
    low, high = band
    expect(
        any(low <= value <= high for value in values),
        f"the gauge sglang:spec_accept_length in [{low:.2f}, {high:.2f}]",
        ", ".join(f"{value:.2f}" for value in values),
        "accepted drafts that are counted otherwise than committed",
    )
    return f"{max(values):.2f} in [{low:.2f}, {high:.2f}]"
