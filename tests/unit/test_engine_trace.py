"""The reading of a profiler trace: waits and copies are counted where they happened."""

import json

from tests.gpu.engine_trace import SKIPPED_STEPS, summary
from tests.probe_plugin.ddtree_probe import TRACED_RANGE


def event(name, cat, ts, dur=1, **args):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args}


def steps(count):
    """Steps of 60 us, 100 us apart, each with two graph launches."""
    for number in range(count):
        start = 100 * number
        yield event(TRACED_RANGE, "user_annotation", start, 60)
        yield event("cudaGraphLaunch", "cuda_runtime", start + 10)
        yield event("cudaGraphLaunch", "cuda_runtime", start + 30)


def summarised(tmp_path, *extra):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*steps(SKIPPED_STEPS + 10), *extra]}))
    return summary(path)


def test_a_clean_trace_has_its_steps_and_launches_and_nothing_else(tmp_path):
    assert summarised(tmp_path) == {"traced_steps": 10, "graph_launches": 20, "inside_steps": {}, "between_steps": {}}


def test_a_wait_inside_a_step_is_told_from_one_between_steps(tmp_path):
    base = 100 * SKIPPED_STEPS
    found = summarised(
        tmp_path,
        event("cudaStreamSynchronize", "cuda_runtime", base + 20),
        event("cudaEventSynchronize", "cuda_runtime", base + 80),
    )
    assert found["inside_steps"] == {"cudaStreamSynchronize": 1}
    assert found["between_steps"] == {"cudaEventSynchronize": 1}


def test_a_copy_to_the_host_is_found_by_the_call_that_started_it(tmp_path):
    base = 100 * SKIPPED_STEPS
    found = summarised(
        tmp_path,
        event("cudaMemcpyAsync", "cuda_runtime", base + 20, correlation=7),
        event("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", base + 300, correlation=7),
        event("cudaMemcpyAsync", "cuda_runtime", base + 21, correlation=8),
        event("Memcpy DtoD (Device -> Device)", "gpu_memcpy", base + 301, correlation=8),
    )
    assert found["inside_steps"] == {"DtoH copy": 1}
