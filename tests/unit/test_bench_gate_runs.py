"""The record of the gate's runs tells a run that passed from one that did not, and keeps both."""

import json

import pytest

from bench import gate_runs
from tests.fault_server.behaviour import Good
from tests.fault_server.engine import Engine
from tests.fault_server.faults import BY_NAME
from tests.fault_server.recording import Recording
from tests.fault_server.server import FaultServer


@pytest.fixture
def record(tmp_path):
    """Adds a run against a server of a behaviour to one file; returns the exit code and the file's runs."""

    def add(behaviour) -> tuple[int, list[dict]]:
        path = tmp_path / "runs.json"
        with FaultServer(Engine(Recording.load()), behaviour()).serving() as server:
            options = ["--base-url", server.url, "--runs", "1", "--beside", "nothing", "--output", str(path)]
            return gate_runs.main(options), json.loads(path.read_text())["runs"]

    return add


def test_runs_are_added_with_what_failed(record):
    code, runs = record(Good)
    assert (code, [run["verdict"] for run in runs]) == (0, ["pass"])
    code, runs = record(BY_NAME["Loop"])
    assert (code, [run["verdict"] for run in runs]) == (1, ["pass", "fail"])
    assert not runs[0]["failed"] and "coherence" in runs[1]["failed"]
    assert all(run["seconds"] > 0 for run in runs)
