"""The whole of `python -m models.train`, in miniature, on the embedded pair."""

import json
import os
import subprocess
import sys

import pytest

from models.checkpoint import check_folders
from models.train.__main__ import main
from tests.simulation import greedy_answer, load_pair, pooled_accept_length, walk
from tests.simulation.defaults import QUESTIONS, pair_dir

FULL = pytest.mark.skipif(os.environ.get("ENGINE_FULL") != "1", reason="trains for a minute: run `make test-full`")


def train(*arguments):
    return subprocess.run([sys.executable, "-m", "models.train", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--target", "nowhere"], "error: The target folder nowhere does not exist"),
        (["--target", "{start}", "--minutes", "0"], "error: --minutes is 0.0; set more than 0."),
        (["--target", "{start}", "--soft", "2"], "error: --soft is 2.0; set 0 to 1."),
        (["--target", "{start}", "--answer-tokens", "4000"], "error: --answer-tokens is 4000; set at most 1536."),
        (
            ["--target", "{start}", "--start", "{start}"],
            "error: The drafter in {start} does not fit the target in {start}: the target is",
        ),
    ],
)
def test_bad_settings_are_told_before_anything_is_written(arguments, told, tmp_path, capsys):
    start = "models/drafters/smollm2-135m-dflash-b8"
    arguments = [argument.format(start=start) for argument in arguments]
    folders = ["--output", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main([*folders, *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith(told.format(start=start))
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def simulated(tokens):
    pair = load_pair(pair_dir() / "target", pair_dir() / "drafter")
    answers = [greedy_answer(pair, pair.chat.prompt_ids(question), tokens) for question in QUESTIONS]
    lengths = {"chain": pooled_accept_length(walk(pair, answer, "chain") for answer in answers)}
    for budget in (4, 8, 16, 32):
        walks = (walk(pair, answer, "tree", budget, top_k=8) for answer in answers)
        lengths[f"tree{budget}"] = pooled_accept_length(walks)
    return lengths


@pytest.mark.slow
@pytest.mark.engine
@FULL
def test_dry_run_leaves_a_drafter_that_fits_and_goes_on(tmp_path):
    out, target = tmp_path / "out", pair_dir() / "target"
    arguments = ["--dry-run", "--target", str(target), "--output", str(out), "--work", str(tmp_path / "work")]
    ran = train(*arguments)
    assert ran.returncode == 0, ran.stderr
    parts = sorted(out.glob("weights-*"))
    assert all(part.stat().st_size <= 16 * 2**20 for part in parts)
    (out / "model.safetensors").write_bytes(b"".join(part.read_bytes() for part in parts))
    assert subprocess.run(["sha256sum", "--check", "--quiet", "model.sha256"], cwd=out).returncode == 0
    check_folders(target, out)
    report = json.loads((out / "training.json").read_text())
    assert report["training"]["steps"] == 2
    assert report["questions"]["held_out"] > 0
    assert report["start"]["ordinary"].items() > simulated(tokens=8).items()
    assert report["trained"]["ordinary"] != report["start"]["ordinary"]

    again = train(*arguments)
    assert again.returncode == 0, again.stderr
    assert "goes on at step 2" in again.stdout
    other = train(*arguments, "--seed", "5")
    assert other.returncode == 1
    assert "holds a run of another plan" in other.stderr
