"""A run is resumed with the same settings and nothing else, and no half-written file is ever read."""

import json
import os
import subprocess
import sys

import pytest

from bench.errors import BenchError
from bench.store import Cell, Run, write_atomically

SETTINGS = {"samples": 10, "card": "NVIDIA H200", "versions": {"sglang": "0.5.16", "torch": "2.11.0"}, "contexts": [60]}
CELL = Cell(60, 8, "tree:16:4:block=8")


def test_resumed_run_knows_its_cells(tmp_path):
    run = Run.begin(tmp_path, SETTINGS)
    assert not run.done(CELL)
    run.write(CELL, {"median": 3})
    del run
    again = Run.begin(tmp_path, json.loads(json.dumps(SETTINGS)))
    assert again.done(CELL)
    assert not again.done(Cell(60, 8, "tree:16:4"))
    assert again.cells() == {CELL: {"cell": {"context": 60, "concurrency": 8, "arm": CELL.arm}, "median": 3}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples": 3}, "samples 10, not 3"),
        ({"card": "NVIDIA B200"}, "card NVIDIA H200, not NVIDIA B200"),
        ({"versions": {"sglang": "0.5.23", "torch": "2.11.0"}}, "versions.sglang 0.5.16, not 0.5.23"),
        ({"contexts": [60, 1024]}, r"contexts \[60\], not \[60, 1024\]"),
        ({"seed": 1}, "seed None, not 1"),
    ],
)
def test_changed_setting_is_refused_by_name(tmp_path, change, said):
    Run.begin(tmp_path, SETTINGS)
    with pytest.raises(BenchError, match=said):
        Run.begin(tmp_path, SETTINGS | change)
    assert Run.read(tmp_path).settings == SETTINGS


def test_two_processes_do_not_share_a_run(tmp_path):
    run = Run.begin(tmp_path, SETTINGS)
    code = f"from pathlib import Path; from bench.store import Run; Run.begin(Path({str(tmp_path)!r}), {SETTINGS!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is being measured by another process" in other.stderr
    del run


def test_file_that_was_being_written_is_not_a_cell(tmp_path, monkeypatch):
    """As if the machine stopped after the bytes were written and before the file got its name."""
    run = Run.begin(tmp_path, SETTINGS)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.write(CELL, {"median": 3})
    assert not run.done(CELL)
    assert run.cells() == {}


def test_arms_that_differ_have_files_that_differ():
    arms = ("ar", "chain", "tree:16:4", "tree:16:4:block=8", "tree:16:4:block=4", "tree:16:4:window=8", "tree:1:64")
    files = {Cell(context, at, arm).file for arm in arms for context in (1, 11) for at in (1, 11)}
    assert len(files) == 4 * len(arms)


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(BenchError, match="holds no run"):
        Run.read(tmp_path)


def test_atomic_write_replaces(tmp_path):
    for value in (1, 2):
        write_atomically(tmp_path / "a.json", {"value": value})
    assert json.loads((tmp_path / "a.json").read_text()) == {"value": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
