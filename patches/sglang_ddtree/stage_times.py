"""Time of each stage of a decode step, for the step-cost benchmark only.

Enabled by SGLANG_DDTREE_STAGE_FILE. Each mark waits for the device, so the figures are the stages' own and the
step as a whole is slower than without; throughput is never measured with it.
"""

import json
import os
import statistics
import time

import torch

ENV_FILE = "SGLANG_DDTREE_STAGE_FILE"
STEPS_PER_LINE = 100
STAGES = ("draft", "tree", "verify", "accept", "commit")


class StageClock:
    """`start()` once per step, then `mark(stage)` after each stage; does nothing unless enabled."""

    def __init__(self):
        self.path = os.environ.get(ENV_FILE)
        self.samples: dict[str, list[float]] = {stage: [] for stage in STAGES}

    @property
    def enabled(self) -> bool:
        return bool(self.path)

    def start(self) -> None:
        if self.path:
            self.last = _now()

    def mark(self, stage: str) -> None:
        if not self.path:
            return
        now = _now()
        self.samples[stage].append((now - self.last) * 1e3)
        self.last = now
        if stage == STAGES[-1] and len(self.samples[stage]) == STEPS_PER_LINE:
            self._write()

    def _write(self) -> None:
        line = {"steps": STEPS_PER_LINE}
        line |= {f"{stage}_ms": round(statistics.median(times), 4) for stage, times in self.samples.items()}
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        self.samples = {stage: [] for stage in STAGES}


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
