"""The Prometheus metrics of the fault server: the recorded series, counting on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

# Decode steps between two updates of SGLang's gauges, and steps over which they average.
INTERVAL = 40


class Metrics:
    """Recorded series by name and labels; thread-safe."""

    def __init__(self, text: str):
        self._lines = text.splitlines()
        self._values = dict(line.rsplit(" ", 1) for line in self._lines if not line.startswith("#"))
        self._values = {series: float(value) for series, value in self._values.items()}
        self._recent: deque[int] = deque(maxlen=INTERVAL)
        self._steps = 0
        self._lock = threading.Lock()

    def text(self) -> str:
        """The page at /metrics."""
        with self._lock:
            lines = [line if line.startswith("#") else self._line(line) for line in self._lines]
        return "\n".join(lines) + "\n"

    def finished(self, prompt_tokens: int, cached_tokens: int, tokens: int, drafts: Sequence[int]) -> None:
        """Count one request: `tokens` it got, `drafts` that each of its verify steps accepted."""
        committed = len(drafts) + sum(drafts)
        with self._lock:
            self._add("num_requests_total", 1)
            self._add("prompt_tokens_total", prompt_tokens)
            self._add("cached_tokens_total", cached_tokens)
            self._add("generation_tokens_total", tokens)
            self._add("spec_verify_calls_total", len(drafts))
            self._add("realtime_tokens_total", committed, 'mode="decode"')
            self._add("cuda_graph_passes_total", len(drafts), 'mode="decode')
            self._add("ddtree_steps_total", len(drafts))
            for accepted in drafts:
                self._step(1 + accepted)

    def batch(self, running: int, waiting: int) -> None:
        """By how much the numbers of running and of waiting requests change."""
        with self._lock:
            self._add("num_running_reqs", running)
            self._add("num_queue_reqs", waiting)

    def _step(self, committed: int) -> None:
        self._recent.append(committed)
        self._steps += 1
        if self._steps % INTERVAL == 0:
            for series in self._of("spec_accept_length"):
                self._values[series] = sum(self._recent) / len(self._recent)

    def _add(self, name: str, amount: float, label: str = "") -> None:
        for series in self._of(name):
            if label in series:
                self._values[series] += amount

    def _of(self, name: str) -> list[str]:
        return [series for series in self._values if series.startswith(f"sglang:{name}{{")]

    def _line(self, recorded: str) -> str:
        series = recorded.rsplit(" ", 1)[0]
        return f"{series} {self._values[series]}"
