"""The cost model finds the costs that made its data, and predicts measured cells that it has not seen."""

import json
from pathlib import Path

import pytest

from bench.cost_model import Model, Point, adaptive, describe, fit, left_out, read
from bench.errors import BenchError

H200 = Path(__file__).parents[2] / "bench" / "results" / "2026-11-29-h200-step-cost.json"
MATRIX = H200.parent / "2026-11-30-h200-matrix"
OWN = {"ar": (1.5, 0.01, 0.0, 0.02), "chain": (2.7, 0.09, 1.8, 0.03), "tree": (2.9, 0.2, 2.1, 0.05)}
TRUE = Model(weights=2.6, node=0.014, own=OWN)
KINDS = {"ar": (1,), "chain": (8,), "tree": (5, 9, 17, 33)}


def made(model=TRUE, contexts=(0, 4096), noise=0.0):
    points = []
    for kind, widths in KINDS.items():
        for width in widths:
            for batch in (1, 8, 32):
                for context in contexts:
                    wrong = 1 + noise * (1 if len(points) % 2 else -1)
                    ms = model.ms(kind, batch, width, context) * wrong
                    points.append(Point(kind, kind, batch, width, context, ms, 1.0 if kind == "ar" else 2.0))
    return points


def test_the_costs_behind_made_data_are_found():
    model = fit(made())
    assert (model.weights, model.node) == pytest.approx((TRUE.weights, TRUE.node), rel=0.05)
    for point in made(contexts=(1000, 8000)):
        predicted = model.ms(point.kind, point.batch, point.width, point.context)
        assert predicted == pytest.approx(point.ms, rel=0.02)


def test_noise_in_the_cells_is_not_amplified():
    assert describe(made(noise=0.03))["left_out"]["ms"]["median"] < 0.05


def test_a_wrong_cell_stands_out_because_it_is_predicted_without_itself():
    points = made()
    spoiled = points[20]
    points[20] = Point(**{**vars(spoiled), "ms": 3 * spoiled.ms})
    errors = [abs(row["ms_error"]) for row in left_out(points)]
    assert max(range(len(errors)), key=errors.__getitem__) == 20


@pytest.mark.parametrize(("source", "cells"), [(H200, 18), (MATRIX, 66)])
def test_measured_cells_of_the_h200_are_predicted_without_themselves(source, cells):
    found = describe(read(source))
    assert found["left_out"]["ms"]["cells"] == found["cells"] == cells
    readme = (H200.parents[1] / "README.md").read_text()
    for errors in (found["left_out"]["ms"], found["left_out"]["tokens_per_s"]):
        assert errors["median"] < 0.05 and errors["worst"] < 0.20
        assert f"{errors['median']:.1%}" in readme and f"{errors['worst']:.1%}" in readme
    # 13 GB of weights take 2.7 ms at 4.8 TB/s.
    assert found["weights"] == pytest.approx(2.7, rel=0.15)


def test_the_verify_pass_walks_through_a_context_that_plain_decoding_splits():
    own = json.loads((H200.parent / "2026-11-30-h200-cost-model.json").read_text())["own"]
    assert own["chain"]["serial"] > 20 * own["ar"]["serial"] and own["tree"]["serial"] > 20 * own["ar"]["serial"]


def test_adaptive_table_of_the_h200_is_close_to_the_best_measured():
    """Trees at few requests, none at 32: so measured, and so predicted."""
    table = adaptive(read(H200), 0)
    measured = json.loads(H200.read_text())["arms"]
    assert sorted(table) == [1, 2, 4, 8, 16, 32]
    assert (table[1], table[32]) == ("tree:31:8", "ar")
    for batch in (1, 8, 32):
        speeds = {name: arm["median"][str(batch)]["full_batch_tokens_per_s"] for name, arm in measured.items()}
        assert speeds[table[batch]] >= 0.98 * max(speeds.values())


def test_tokens_per_second_are_those_of_the_whole_batch():
    model, row = fit(read(H200)), json.loads(H200.read_text())["arms"]["tree:16:4"]["median"]["32"]
    committed = row["full_batch_tokens_per_s"] * row["ms_per_step"] / 1000 / 32
    assert model.tokens_per_s("tree", 32, 17, 0, committed) == pytest.approx(row["full_batch_tokens_per_s"], rel=0.1)


def test_adaptive_table_needs_more_than_one_batch_size():
    assert adaptive([point for point in made() if point.batch == 8], 0) == {}


def test_kind_that_was_not_measured_is_refused():
    model = fit([point for point in made() if point.kind != "chain"])
    with pytest.raises(BenchError, match="no step of chain"):
        model.ms("chain", 1, 8, 0)


def test_too_few_cells_are_refused():
    with pytest.raises(BenchError, match="too few"):
        fit(made()[:2])


def test_another_file_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(BenchError, match="holds no step cost"):
        read(tmp_path / "x.json")
