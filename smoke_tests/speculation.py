"""The prompts of the acceptance set, answered one by one between two scrapes of the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass

from . import acceptance, prometheus
from .client import Answer, Server
from .pair import AcceptanceSet

# Counters are written after the reply has left; they follow at once, unless the process is starved.
COUNTERS_TIMEOUT_S = 30


@dataclass(frozen=True)
class Asked:
    """One prompt of a category with its answer, and how long that took."""

    category: str
    prompt: str
    answer: Answer
    seconds: float


class Run:
    """asked: every prompt in its order. before, after: the metrics, None where they are not served."""

    def __init__(self, server: Server, wanted: AcceptanceSet):
        prompts = [(category, p, server.chat_ids(p)) for category, group in wanted.prompts.items() for p in group]
        sampling = {"temperature": wanted.temperature, "max_new_tokens": wanted.max_tokens}
        self.before = scrape(server)
        self.asked = [_ask(server, category, prompt, ids, sampling) for category, prompt, ids in prompts]
        self.after = self._settled(server)

    @property
    def tokens(self) -> int:
        return sum(one.answer.completion_tokens for one in self.asked)

    @property
    def tokens_per_second(self) -> float:
        """Of one request at a time, prefill included."""
        return self.tokens / sum(one.seconds for one in self.asked)

    @property
    def tokens_of_others(self) -> float:
        """Tokens of requests that finished meanwhile and are none of the run's."""
        return self.grown("sglang:generation_tokens_total") - self.tokens

    def counts(self) -> dict[str, list[acceptance.Acceptance]]:
        """By category, one entry per answer. Raises ProbeError when an answer's counts are missing or contradict."""
        found: dict[str, list[acceptance.Acceptance]] = {}
        for one in self.asked:
            found.setdefault(one.category, []).append(acceptance.of_request(one.answer))
        return found

    def grown(self, counter: str, **label_prefixes: str) -> float:
        """By how much a counter grew during the run, summed over its series."""
        return self.after.total(counter, **label_prefixes) - self.before.total(counter, **label_prefixes)

    def _settled(self, server: Server) -> prometheus.Snapshot | None:
        deadline = time.monotonic() + COUNTERS_TIMEOUT_S
        while True:
            self.after = scrape(server)
            if self.after is None or self.before is None or time.monotonic() > deadline:
                return self.after
            if self.grown("sglang:num_requests_total") >= len(self.asked):
                return self.after
            time.sleep(0.2)


def _ask(server: Server, category: str, prompt: str, ids: list[int], sampling: dict) -> Asked:
    began = time.monotonic()
    answer = server.generate(ids, **sampling)
    return Asked(category, prompt, answer, time.monotonic() - began)


def scrape(server: Server) -> prometheus.Snapshot | None:
    reply = server.send("GET", "/metrics")
    return prometheus.Snapshot(reply.text) if reply.status_code == 200 else None
