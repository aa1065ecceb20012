"""The page shows every cell, the losing and the refused ones too, and every finding has its evidence."""

import re
from pathlib import Path

import pytest
import yaml

from bench import choose, findings, page, report, sources
from bench.errors import BenchError
from bench.stats import interval
from bench.store import Cell, Run

pytest.importorskip("matplotlib")
RESULTS = Path(__file__).parents[2] / "bench" / "results"
COST, STAGES = RESULTS / "2026-11-29-h200-step-cost.json", RESULTS / "2026-11-30-h200-stages.json"
SPEEDS = {"ar": 100.0, "chain": 90.0, "tree:8:4": 130.0, "tree:16:4": 150.0}
SETTINGS = {"samples": 10, "seed": 0, "block_size": 8, "card": "A card <1>", "driver": None, "patches": "abc"}
SETTINGS |= {"target": "t", "drafter": "d", "versions": {"sglang": "0.5.16"}}


def asked(wrong):
    failures = [{"ask": "2 + 2?", "verdict": "wrong", "why": "expected '4', came 'five'"}] * wrong
    return {"asked": 5, "right": 5 - wrong, "wrong": wrong, "harness": 0, "failures": failures}


def document(name, speed, wrong=0):
    speeds = [speed * (1 + 0.001 * i) for i in range(10)]
    accept = None if name == "ar" else 2.0
    spread = {"p50": 1.0, "p90": 2.0, "p99": 3.0}
    loop = {"requests": 8, "requests_per_s": 1.5, "tokens_per_s": speed, "goodput_per_s": 1.25}
    loop |= dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms"), spread)
    median = {"tokens_per_s": speed, "full_batch_tokens_per_s": speed, "accept_length": accept, "ms_per_step": 5.0}
    return {
        "run": SETTINGS,
        "dtype": "float32",
        "date": "2026-11-30T00:00:00+00:00",
        "command": "python -m bench.matrix",
        "block": {"began": "2026-11-30", "arms": list(SPEEDS)},
        "samples": [{"tokens_per_s": value} for value in speeds],
        "median": median,
        "interval": {"tokens_per_s": interval(speeds)},
        "answers": [[1, 2], [3, 4]],
        "serving": {"closed": loop, "open": loop},
        "quality": {"known": asked(wrong), "coding": asked(0), "accept_length": {"chat": 2.5} if accept else None},
        "server": {"start_s": 12.5},
        "host": {"load_max": 1.0, "slowed_by": ["power cap"]},
    }


@pytest.fixture
def run(tmp_path):
    """Two points; the fastest tree answers worse."""
    made = Run.begin(tmp_path / "run", SETTINGS)
    for concurrency in (1, 8):
        for name, speed in SPEEDS.items():
            found = document(name, speed * concurrency, wrong=int(name == "tree:16:4"))
            made.write(Cell(60, concurrency, name), found)
    return made.folder


def rendered(run, **others):
    return page.page([sources.read(run)], others.get("against"), [])


def test_every_cell_is_in_the_page(run):
    text = rendered(run)
    table = text.partition("<h3>Every cell</h3>")[2].partition("</table>")[0]
    rows = [re.sub("<[^>]+>", " ", row).split() for row in table.split("<tr>")[2:]]
    assert [row[0] for row in rows] == list(SPEEDS) * 2
    assert "0.900 slower" in re.sub("<[^>]+>", " ", table)
    assert "1.300 faster" in re.sub("<[^>]+>", " ", table)
    assert "2 of 2" in table and "power cap, 1.0" in table


def test_arm_that_answers_worse_is_refused_in_the_open(run):
    text = rendered(run)
    assert "known: 1 of 5 wrong, 0 for the baseline" in text
    assert "wrong: 2 + 2? - expected &#x27;4&#x27;, came &#x27;five&#x27;" in text


def test_a_start_is_split_into_its_phases(run):
    stored = RESULTS / "2026-12-01-h200-cold-start.json"
    text = page.page([sources.read(run)], None, [], {"starts": sources.read_starts(stored)})
    section = text[text.index("Where a start's time goes") :]
    assert "<svg" in section and "start 2 (warm) over start 1</td><td>0.438" in section


def test_another_file_holds_no_starts(tmp_path):
    with pytest.raises(BenchError, match="name a result of bench.cold_start"):
        sources.read_starts(COST)
    with pytest.raises(BenchError, match="cannot be read"):
        sources.read_starts(tmp_path / "none.json")


def test_latency_and_cold_starts_are_in_the_page(run):
    text = rendered(run)
    assert "TTFT p50" in text and text.count("<td>closed</td>") == 8
    assert "<td>12.5</td>" in text


def test_what_results_say_is_text_and_no_markup(run):
    assert "A card &lt;1&gt;" in rendered(run)
    assert "A card <1>" not in rendered(run)


def test_page_needs_nothing_from_elsewhere(run, tmp_path):
    assert report.main([str(run), str(COST), str(STAGES), "--output", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert not re.search(r"<(script|link|img|iframe)\b", text)
    # Throughput, envelope, accept length and cost of each; stages of one; no cost where too few cells are.
    assert text.count("<svg") == 12
    assert "median error" in text and "Where a step" in text and "The mask bug" in text


def test_envelope_is_of_arms_that_answer_rightly(run, monkeypatch):
    drawn = {}
    monkeypatch.setattr(page.plots, "envelope", lambda best, over: drawn.update(best=best, over=over) or "")
    rendered(run)
    assert [standing.arm for standing in drawn["best"].values()] == ["tree:8:4", "tree:8:4"]
    assert drawn["over"] == {(60, 1): pytest.approx(1.3), (60, 8): pytest.approx(1.3)}


def test_two_runs_are_compared_cell_by_cell(run):
    read = sources.read(run)
    text = rendered(run, against=read)
    assert "run beside run" in text and "no sign test" in text


def test_runs_without_a_cell_in_common_are_refused(run):
    with pytest.raises(BenchError, match="no cell in common"):
        rendered(run, against=sources.read(COST))


def test_table_for_a_readme_marks_the_fastest():
    lines = page.markdown(sources.read(COST).cells).splitlines()
    assert lines[0] == "| context | requests at once | ar | chain | tree:8:4 | tree:16:4 | tree:16:8 | tree:31:8 |"
    assert lines[2] == "| questions | 1 | 232 | 305 | 345 | 382 | 382 | **394** |"
    assert lines[4].startswith("| questions | 32 | **6406** |")


def test_five_samples_cannot_claim_faster():
    """The stored results of five repetitions show ratios; a claim needs more."""
    table = rendered(COST).partition("<h3>Every cell</h3>")[2]
    assert "1.647 undecided" in re.sub("<[^>]+>", " ", table)
    assert "faster" not in table


def test_empty_run_and_wrong_file_are_refused(tmp_path, capsys):
    Run.begin(tmp_path / "empty", SETTINGS)
    for path in (tmp_path / "empty", RESULTS / "2026-11-30-h200-gate.json"):
        assert report.main([str(path), "--output", str(tmp_path / "page.html")]) == 1
        assert str(path) in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_profile_of_a_measured_matrix(run, tmp_path, capsys):
    profile = tmp_path / "profile.yaml"
    arguments = [str(run), "--profile", str(profile), "--workload", "latency:60:1"]
    assert choose.main(arguments) == 0
    assert "1.0 of the fastest there" in capsys.readouterr().out
    found = yaml.safe_load(profile.read_text())
    assert found["workloads"]["latency"]["settings"] == {"algorithm": "tree", "budget": 8, "top_k": 4}
    assert found["workloads"]["latency"]["rounds"][0]["arms"]["tree:16:4"]["quality"] == "worse"
    table = found["adaptive"]["arm_by_requests_at_once"][60]
    assert sorted(table) == [1, 2, 4, 8] and "tree:16:4" not in table.values()
    assert found["host"]["card"] == "A card <1>" and found["expires"] > found["measured"]


def test_workload_at_a_point_without_cells_is_refused(run, tmp_path, capsys):
    assert choose.main([str(run), "--profile", str(tmp_path / "p.yaml"), "--workload", "long:4096:1"]) == 1
    assert "use one of 60:1, 60:8" in capsys.readouterr().err


def test_the_findings_name_evidence_that_is_there():
    found = findings.load()
    assert found[0].title == "The mask bug"
    assert all(f.evidence for f in found if f.origin == "measured")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"evidence": ["results/x.json"]}, "x.json"), ({"origin": "heard"}, "origin"), ({"evidence": []}, "evidence")],
)
def test_finding_without_evidence_is_refused(tmp_path, change, said):
    good = dict.fromkeys(("title", "believed", "fact", "measured_by"), "-")
    good |= {"origin": "measured", "evidence": ["README.md"]}
    path = tmp_path / "findings.yaml"
    path.write_text(yaml.safe_dump([good]))
    assert len(findings.load(path)) == 1
    path.write_text(yaml.safe_dump([good | change]))
    with pytest.raises(BenchError, match=said):
        findings.load(path)
