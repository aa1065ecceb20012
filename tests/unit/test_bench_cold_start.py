"""The phases of a start add up to it, and each line of the server's log ends the right one."""

import pytest

from bench.cold_start import cache_size, kinds, ratios, table
from bench.errors import BenchError
from bench.start_log import captures, phases

LOG = [
    (9.0, "[2026-11-30 12:00:09] Load weight begin. avail mem=139.00 GB"),
    (11.0, "[2026-11-30 12:00:11] Load weight end. elapsed=2.01 s, type=LlamaForCausalLM"),
    (12.0, "[2026-11-30 12:00:12] Capture target decode CUDA graph begin. backend=full"),
    (12.5, "\rCapturing batches (bs=8): 50%"),
    (30.0, "[2026-11-30 12:00:30] Capture target decode CUDA graph end. elapsed=17.80 s, mem usage=1.0 GB"),
    (31.0, "[2026-11-30 12:00:31] Load weight begin. avail mem=130.00 GB"),
    (31.5, "[2026-11-30 12:00:31] Load weight end. elapsed=0.40 s, type=DFlashDraftModel"),
    (50.0, "[2026-11-30 12:00:50] The server is fired up and ready to roll!"),
]


def test_phases_add_up_to_the_start():
    found = phases(LOG, 52.0)
    assert sum(found.values()) == pytest.approx(52.0)
    # Target and drafter are both read.
    assert found["read weights"] == 2.5
    assert (found["capture graphs"], found["until healthy"]) == (18.0, 2.0)


def test_captures_are_told_by_name():
    assert captures(LOG) == {"target decode": 17.8}


def test_a_later_start_is_held_against_the_first():
    starts = [
        {"kind": "cold", "start_s": 100.0, "phases_s": {"capture graphs": 60.0}, "requests_s": {"short": 20.0}},
        {"kind": "warm", "start_s": 40.0, "phases_s": {}, "requests_s": {"short": 8.0}},
    ]
    assert ratios(starts) == {
        "start 2 (warm) over start 1": 0.4,
        "start 2 (warm) over start 1, with requests": 0.4,
    }
    assert "100.0      40.0" in table(starts)


@pytest.mark.parametrize("text", ["warm,cold", "cold,hot", ""])
def test_starts_that_make_no_comparison_are_refused(text):
    with pytest.raises(BenchError, match="--starts"):
        kinds(text)


def test_caches_are_counted_by_library(tmp_path):
    for name in ("triton/cache/a/k.cubin", ".cache/flashinfer/b.so", ".cache/flashinfer/deep/c.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"0" * 500_000)
    assert cache_size(tmp_path) == {
        ".cache/flashinfer": {"files": 2, "mb": 1.0},
        "triton/cache": {"files": 1, "mb": 0.5},
    }
