"""An adaptive arm is held against the fastest arm that took turns with it."""

import pytest

from bench.adaptive_check import against_best, main
from bench.errors import BenchError
from bench.store import Cell, Run

SPEEDS = {"ar": [100, 101, 99], "tree:8:4": [120, 121, 119], "adaptive:t.json": [119, 120, 118]}


def cells(speeds=SPEEDS, blocks=None):
    blocks = blocks or {}
    return {
        Cell(60, 4, arm): {
            "median": {"tokens_per_s": sorted(values)[1]},
            "samples": [{"tokens_per_s": value} for value in values],
            "block": blocks.get(arm, 1),
        }
        for arm, values in speeds.items()
    }


def test_the_fastest_other_arm_is_the_measure():
    (row,) = against_best(cells())
    assert (row["best"], row["ratio"]) == ("tree:8:4", pytest.approx(119 / 120, abs=1e-4))


def test_an_arm_of_another_block_is_no_measure():
    (row,) = against_best(cells(blocks={"tree:8:4": 2}))
    assert row["best"] == "ar"
    with pytest.raises(BenchError, match="took turns"):
        against_best(cells(blocks={"adaptive:t.json": 2}))


def test_a_run_without_the_arm_is_refused():
    with pytest.raises(BenchError, match="adaptive:TABLE"):
        against_best(cells({"ar": [1, 1, 1]}))


@pytest.mark.parametrize(("least", "code"), [(0.98, 0), (0.995, 1)])
def test_the_exit_code_is_the_verdict(tmp_path, least, code):
    run = Run.begin(tmp_path, {"block_size": 8})
    for cell, document in cells().items():
        run.write(cell, document)
    assert main([str(tmp_path), "--at-least", str(least)]) == code
