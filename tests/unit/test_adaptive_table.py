"""The table of an adaptive server says what was fastest where it was measured, and interpolates between."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import adaptive_table
from bench.cost_model import Point, read
from bench.errors import BenchError

H200 = Path(__file__).parents[2] / "bench" / "results" / "2026-11-29-h200-step-cost.json"


def point(arm, batch, ms, committed=1.0):
    return Point(arm, arm.partition(":")[0], batch, 1, 0, ms, committed)


MADE = [
    *(point("ar", batch, 4 + 0.01 * batch) for batch in (1, 8, 64)),
    *(point("tree:8:4", batch, 5 + 0.5 * batch, 2.0) for batch in (1, 8, 64)),
]


def test_the_crossing_between_measured_batches_is_found():
    # 2 / (5 + b / 2) falls below 1 / (4 + b / 100) between 6 and 7 requests, seen once it is more than noise.
    assert adaptive_table.choose(adaptive_table.curves(MADE, 4)) == {1: 8, 7: "ar"}


def test_the_choice_is_the_fastest_at_every_measured_batch_of_the_h200():
    points = [p for p in read(H200) if p.arm != "tree:8:4" and p.arm != "tree:16:4"]
    tiers = adaptive_table.curves(points, 8)
    starts = adaptive_table.choose(tiers)
    for batch in (1, 8, 32):
        chosen = starts[max(start for start in starts if start <= batch)]
        fastest = max(p.full_batch_tokens_per_s for p in points if p.batch == batch)
        assert adaptive_table.speed(tiers[chosen], batch) > 0.99 * fastest


def test_what_is_written_is_what_the_engine_reads(tmp_path):
    from sglang_ddtree import tiers

    out = tmp_path / "table.json"
    assert adaptive_table.main([str(H200), "--top-k", "8", "--output", str(out)]) == 0
    table = tiers.read(str(out), 1000)
    written = json.loads(out.read_text())
    assert {str(start): name for start, name in zip(table.starts, table.names, strict=True)} == written["tiers"]
    assert (table.top_k, table.device) == (8, "NVIDIA H200")


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([p for p in MADE if p.arm != "ar"], "add the arm ar"),
        (MADE[1:], "measure every arm at 1 and at 64"),
        (MADE[:-1], "measure every arm at 1 and at 64"),
    ],
)
def test_a_choice_that_was_not_measured_is_refused(points, words):
    with pytest.raises(BenchError, match=words):
        adaptive_table.choose(adaptive_table.curves(points, 4))


def test_several_contexts_or_top_ks_must_be_named():
    with pytest.raises(BenchError, match="--context"):
        adaptive_table.at_context([*MADE, replace(MADE[0], context=1024)], None)
    with pytest.raises(BenchError, match="--top-k"):
        adaptive_table.only_top_k([*MADE, replace(MADE[-1], arm="tree:8:8")])
