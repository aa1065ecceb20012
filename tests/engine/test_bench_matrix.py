"""A small matrix on the CPU pair: killed in the middle, resumed, chosen from and rendered."""

import json
import os
import signal
import subprocess
import time

import pytest
import yaml

from bench import choose, report
from bench.claims import standings
from bench.store import Run
from tests.engine.conftest import FULL
from tests.engine.server import PAIR, ROOT, Engine, Server, environment, python

VERSION = "0.5.16"
SMALL = ["--samples", "2", "--questions", "1", "--max-new-tokens", "8", "--serving-requests", "1", "--device", "cpu"]
PAIR_FLAGS = ["--target", str(PAIR / "target"), "--drafter", str(PAIR / "drafter")]
# One server at a time, as on a machine that holds no second one.
MATRIX = [*PAIR_FLAGS, *SMALL, "--arms", "ar,tree:7:4", "--contexts", "60", "--concurrency", "1", "--side-by-side", "1"]
WAIT_SECONDS, UNFINISHED = 300, 75


def bench(module, *arguments):
    return [str(python(VERSION)), "-m", f"bench.{module}", *map(str, arguments)]


def run(module, *arguments):
    command = bench(module, *arguments)
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)


def cells(folder):
    return {path.name: path for path in (folder / "cells").glob("*.json")}


def wait_for(condition, process):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.2)


def servers_of(folder):
    """Processes whose log lies in the run, whoever their parent is."""
    found = []
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and os.readlink(f"/proc/{entry.name}/fd/1").startswith(str(folder)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Folder of a matrix that was killed once its first cell was done and the second server was on its way."""
    folder = tmp_path_factory.mktemp("bench") / "run"
    command = bench("matrix", *MATRIX, "--run", folder)
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: cells(folder) and (folder / "logs" / "tree-7-4.log").exists(), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(cells(folder)) == 1
    deadline = time.monotonic() + 30
    while servers_of(folder) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert servers_of(folder) == [], "a server outlived the benchmark"
    later = run("matrix", *MATRIX, "--run", folder, "--stop-after", "0.001")
    assert later.returncode == UNFINISHED, later.stderr
    before = {name: path.stat().st_mtime_ns for name, path in cells(folder).items()}
    again = run("matrix", *MATRIX, "--run", folder)
    assert again.returncode == 0, again.stderr
    assert "1 cells in 1 blocks to measure" in again.stderr
    assert all(cells(folder)[name].stat().st_mtime_ns == when for name, when in before.items())
    return folder


def test_resumed_matrix_is_whole(measured):
    found = {name: json.loads(path.read_text()) for name, path in cells(measured).items()}
    assert {document["cell"]["arm"] for document in found.values()} == {"ar", "tree:7:4"}
    for document in found.values():
        assert len(document["samples"]) == 2
        assert document["serving"]["closed"]["requests"] == 1 and document["serving"]["open"]["ttft_ms"]["p50"] > 0
        assert document["quality"]["known"]["wrong"] == document["quality"]["known"]["harness"] == 0
        assert document["flags"] and document["command"] and document["host"]["load_max"] > 0
        assert document["run"]["patches"] and document["run"]["target"]
        assert document["dtype"] == "float32"
    tree = next(document for document in found.values() if document["cell"]["arm"] == "tree:7:4")
    assert tree["server"]["engine"]["budget"] == "7"
    assert tree["median"]["accept_length"] > 1 and set(tree["quality"]["accept_length"]) == {"chat", "list", "code"}


def test_float32_answers_are_those_without_speculation(measured):
    answers = [json.loads(path.read_text())["answers"] for path in cells(measured).values()]
    assert answers[0] == answers[1] and len(answers[0][0]) == 8


def test_finished_matrix_starts_no_server(measured):
    began = time.monotonic()
    again = run("matrix", *MATRIX, "--run", measured)
    assert (again.returncode, "0 cells in 0 blocks" in again.stderr) == (0, True), again.stderr
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("change", "said"), [(["--samples", "3"], "samples 2, not 3"), (["--seed", "1"], "seed 0, not 1")]
)
def test_changed_setting_is_refused_by_name(measured, change, said):
    again = run("matrix", *MATRIX, *change, "--run", measured)
    assert again.returncode == 1 and said in again.stderr


def test_the_measured_best_is_chosen(measured, tmp_path):
    assert choose.main([str(measured), "--profile", str(tmp_path / "profile.yaml")]) == 0
    (workload,) = yaml.safe_load((tmp_path / "profile.yaml").read_text())["workloads"].values()
    speeds = {}
    for path in cells(measured).values():
        document = json.loads(path.read_text())
        speeds[document["cell"]["arm"]] = document["median"]["tokens_per_s"]
    assert workload["arm"] == max(speeds, key=speeds.get)


def test_the_report_shows_both_cells(measured, tmp_path):
    assert report.main([str(measured), "--output", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "<svg" in text and "tree:7:4" in text and "Cold starts" in text


@pytest.mark.skipif(not FULL, reason="it starts a server for a refusal and one cell")
def test_running_instance_is_measured_as_what_it_is(tmp_path):
    """Two names for one server take turns with each other: samples of one block are pairs."""
    with Server(Engine(VERSION, budget=7, top_k=1)) as server:
        flags = [*PAIR_FLAGS, *SMALL, "--serving-requests", "0", "--no-quality", "--run", tmp_path / "run"]
        wrong = run("matrix", *flags, "--arms", "tree:8:4", "--url", f"tree:8:4={server.url}")
        assert wrong.returncode == 1 and "runs chain" in wrong.stderr
        names = ("chain", "chain:page=1")
        urls = [word for name in names for word in ("--url", f"{name}={server.url}")]
        right = run("matrix", *flags, "--arms", ",".join(names), *urls)
        assert right.returncode == 0, right.stderr
    found = Run.read(tmp_path / "run").cells()
    for cell in found.values():
        assert cell["server"]["url"] == server.url and cell["server"]["patches"]
        assert [cell[key] for key in ("flags", "quality", "serving")] == [None, None, None]
    claim = standings(found, 60, 1)["chain:page=1"].over["chain"]
    assert claim["wins"] + claim["losses"] == 2 and claim["verdict"] == "undecided"


@pytest.mark.skipif(not FULL, reason="it starts each candidate's server anew")
def test_tune_measures_and_chooses(tmp_path):
    flags = ["--arms", "ar,tree:7:4", "--workload", "latency:60:1", "--no-priors", "--side-by-side", "1"]
    profile = tmp_path / "profile.yaml"
    tuned = run("tune", *PAIR_FLAGS, *SMALL, *flags, "--run", tmp_path / "run", "--profile", profile)
    assert tuned.returncode == 0, tuned.stderr
    found = yaml.safe_load(profile.read_text())["workloads"]["latency"]
    speeds = {name: line["tokens_per_s"] for name, line in found["rounds"][-1]["arms"].items()}
    assert set(speeds) == {"ar", "tree:7:4"} and found["arm"] == max(speeds, key=speeds.get)
