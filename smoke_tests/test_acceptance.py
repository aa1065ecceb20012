"""Accept length is reported for each request, inside the validated window, and the same in the metrics."""

import time

import pytest

from . import acceptance, prometheus
from .pair import Pair
from .verdict import ProbeError, expect

# Counters are written after the reply has left; they follow at once, unless the process is starved.
COUNTERS_TIMEOUT_S = 30
# The scheduler runs up to one step more for each request than the request sees, with overlap scheduling.
SCHEDULER_TOLERANCE = 0.10
# Tokens of other requests, as a share of the probe's own, up to which the comparison means something.
OTHERS_SHARE = 0.10
RENAMED = "a metric that this SGLang version calls otherwise"


class Run:
    """The pair's prompts answered one by one, between two scrapes of the metrics (None: not served).

    seconds: how long the answers took together.
    """

    def __init__(self, server, expected: Pair):
        prompts = [server.chat_ids(prompt) for prompt in expected.acceptance_prompts]
        self.before = scrape(server)
        began = time.monotonic()
        self.answers = [server.generate(ids, max_new_tokens=expected.acceptance_tokens) for ids in prompts]
        self.seconds = time.monotonic() - began
        self.after = self._settled(server)

    def _settled(self, server) -> prometheus.Snapshot | None:
        deadline = time.monotonic() + COUNTERS_TIMEOUT_S
        while True:
            self.after = scrape(server)
            if self.after is None or time.monotonic() > deadline:
                return self.after
            if self.before is None or self.grown("sglang:num_requests_total") >= len(self.answers):
                return self.after
            time.sleep(0.2)

    @property
    def tokens_of_others(self) -> float:
        """Tokens of requests that finished meanwhile and are none of the run's."""
        return self.grown("sglang:generation_tokens_total") - sum(a.completion_tokens for a in self.answers)

    def grown(self, counter: str, **label_prefixes: str) -> float:
        """By how much a counter grew during the run, summed over its series."""
        return self.after.total(counter, **label_prefixes) - self.before.total(counter, **label_prefixes)


def scrape(server) -> prometheus.Snapshot | None:
    reply = server.send("GET", "/metrics")
    return prometheus.Snapshot(reply.text) if reply.status_code == 200 else None


@pytest.fixture(scope="module")
def run(target) -> Run:
    if target.facts.algorithm is None:
        pytest.skip("the server runs without speculation (AR): there is no accept length")
    return Run(target.server, target.pair)


@pytest.fixture
def requests(run) -> list[acceptance.Acceptance]:
    try:
        return [acceptance.of_request(answer) for answer in run.answers]
    except ProbeError:
        pytest.skip("not judged: the requests report no usable accept length, see accept_length_reported")


def test_accept_length_reported(run, evidence):
    total = acceptance.added(acceptance.of_request(answer) for answer in run.answers)
    evidence.say(
        f"{len(run.answers)} requests: {total.tokens} tokens in {total.steps} steps, "
        f"at most {len(total.histogram)} in one",
        tokens=total.tokens,
        steps=total.steps,
        histogram=list(total.histogram),
    )


def test_accept_length_in_window(target, expected, run, requests, evidence):
    facts = target.facts
    total = acceptance.added(requests)
    speed = total.tokens / run.seconds
    evidence.say("", accept_length=total.accept_length, tokens_per_second=speed)
    try:
        window = acceptance.window_for(expected.windows, facts.algorithm, facts.budget, facts.top_k)
    except ProbeError as unrecorded:
        raise ProbeError(f"{unrecorded} (this run measured {total.accept_length:.3f})") from None
    evidence.say(
        f"{total.accept_length:.3f} tokens per step in [{window.low}, {window.high}], {speed:.1f} tok/s",
        window=[window.low, window.high],
    )
    wanted = f"accept length in [{window.low}, {window.high}] for {facts.algorithm} budget {facts.budget}"
    expect(
        total.accept_length >= window.low,
        wanted,
        f"{total.accept_length:.3f}, too low",
        "another drafter, wrong target layers or mask token, or wrong positions in the draft",
    )
    expect(
        total.accept_length <= window.high,
        wanted,
        f"{total.accept_length:.3f}, too high",
        "looping text, or a verification that accepts what the target would not say",
    )


def test_accept_length_in_metrics(target, run, requests, evidence):
    total = acceptance.added(requests)
    expect(
        run.before is not None and run.after is not None,
        "metrics at /metrics",
        "none",
        "a server started without --enable-metrics",
    )
    counters = accept_length_in_counters(run, total)
    scheduler = per_step_in_scheduler(run)
    # A step that serves another request as well commits tokens for both.
    tolerance = SCHEDULER_TOLERANCE + run.tokens_of_others / total.tokens
    expect(
        abs(scheduler / total.committed_per_step - 1) <= tolerance,
        f"{total.committed_per_step:.3f} tokens per step in the scheduler, within {tolerance:.0%}",
        f"{scheduler:.3f}",
        "accepted drafts that are counted otherwise than committed",
    )
    gauge = checked_gauge(target.facts, run, requests)
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
    others = run.grown("sglang:num_requests_total") - len(run.answers)
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


def checked_gauge(facts, run: Run, requests) -> str:
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
