"""What a profiler trace of decode steps says about waiting for the GPU and copying from it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from pathlib import Path

from tests.probe_plugin.ddtree_probe import TRACED_RANGE

#: Calls of the CUDA runtime and driver that block the calling thread until the GPU has done something.
WAITS = ("Synchronize", "cudaMemcpy2D", "cudaMalloc", "cudaFree")
#: The first traced steps pay for the profiler's own start.
SKIPPED_STEPS = 5


def summary(path: Path) -> dict:
    """Counts inside and between the marked decode steps of one trace in Chrome's format.

    Inside a step the worker runs; between steps the scheduler hands out the previous step's tokens.
    """
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    steps = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["name"] == TRACED_RANGE and event.get("cat") == "user_annotation"
    )[SKIPPED_STEPS:]
    copies = {e["args"].get("correlation") for e in events if e.get("cat") == "gpu_memcpy" and "DtoH" in e["name"]}
    inside, between = Counter(), Counter()
    for event in events:
        if event.get("cat") not in ("cuda_runtime", "cuda_driver") or not steps:
            continue
        if not steps[0][0] <= event["ts"] <= steps[-1][1]:
            continue
        kind = _kind(event, copies)
        if kind:
            (inside if _is_inside(event["ts"], steps) else between)[kind] += 1
    return {
        "traced_steps": len(steps),
        "graph_launches": sum(_is_graph_launch(event, steps) for event in events),
        "inside_steps": dict(inside),
        "between_steps": dict(between),
    }


def _kind(event: dict, copies: set) -> str | None:
    """A copy to the host, the name of a waiting call, or None for a call that neither waits nor copies to the host."""
    if event.get("args", {}).get("correlation") in copies:
        return "DtoH copy"
    return event["name"] if any(wait in event["name"] for wait in WAITS) else None


def _is_inside(time: float, steps: list[tuple[float, float]]) -> bool:
    at = bisect_right(steps, (time, float("inf"))) - 1
    return at >= 0 and time <= steps[at][1]


def _is_graph_launch(event: dict, steps: list[tuple[float, float]]) -> bool:
    return "GraphLaunch" in event["name"] and event.get("cat") == "cuda_runtime" and _is_inside(event["ts"], steps)
