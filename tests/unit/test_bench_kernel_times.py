"""Time in kernels is told from time between them, and the costliest kernels come first."""

import gzip
import json

import pytest

from bench.errors import BenchError
from bench.kernel_times import read, summary, table


def event(name: str, start: float, duration: float, category: str = "kernel") -> dict:
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": duration}


EVENTS = [
    event("gemm", 0, 3000),
    event("small", 4000, 500),
    event("gemm", 5000, 3000),
    event("step", 0, 9000, "cpu_op"),
]


def test_kernels_are_summed_by_name_and_gaps_are_left_out():
    found = summary(EVENTS, top=5)
    assert (found["span_ms"], found["busy_ms"]) == (8.0, 6.5)
    assert found["kernels"] == [
        {"name": "gemm", "launches": 2, "ms": 6.0},
        {"name": "small", "launches": 1, "ms": 0.5},
    ]
    assert summary(EVENTS, top=1)["kernels"] == found["kernels"][:1]


def test_a_trace_of_a_cpu_lists_operators():
    assert [kernel["name"] for kernel in summary(EVENTS[-1:], 5)["kernels"]] == ["step"]


def test_a_trace_without_a_step_is_refused():
    with pytest.raises(BenchError, match="no step ran"):
        summary([event("launch", 0, 1, "cuda_runtime")], 5)


def test_a_trace_is_read_as_the_profiler_writes_it(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [*EVENTS, {"ph": "M", "name": "meta"}]}).encode()))
    assert read(path) == EVENTS


def test_the_table_names_arm_point_and_kernels():
    text = table({"rows": [{"arm": "tree:4:8", "requests": 64, **summary(EVENTS, 5)}]})
    assert text.splitlines()[0] == "tree:4:8, 64 at once: 6.5 of 8.0 ms busy"
    assert "6.00 ms      2 x  gemm" in text
