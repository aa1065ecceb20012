"""The smoke tests against the real engine: green on a good one, red on one that was broken on purpose."""

import json
import os
import subprocess
import sys

import pytest

from tests.engine.broken_drafter import other_step, shifted_layers
from tests.engine.conftest import FULL
from tests.engine.server import PAIR, ROOT, Engine, Server
from tests.probe_plugin.probed_engine import ProbedEngine

VERSION, SHAPE = "0.5.16", {"budget": 15, "top_k": 8}
# Fault, and the probe that must see it, whatever else fails. With a dropped patch nothing serves: see tests/image.
BROKEN = {
    "width_bug:unchecked": "recorded_text",
    "sibling_leak": "recorded_text",
    "slots_off_by_one": "recorded_text",
    "greedy_sampling": "sampling",
}
BROKEN_DRAFTERS = {shifted_layers: "accept_length_in_window", other_step: "accept_length_in_window"}
# The window of a quick run is too wide for a drafter that is one layer off.
ACCEPTANCE = ("--class", "full", "smoke_tests/test_acceptance.py")
# Each costs a start and a suite, so a plain run takes two that no other test would see.
QUICK = {"greedy_sampling", shifted_layers}


def chosen(faults: dict) -> list:
    """Cases of this run, named after the fault."""
    cases = faults.items() if FULL else [case for case in faults.items() if case[0] in QUICK]
    return [pytest.param(fault, wanted, id=getattr(fault, "__name__", fault)) for fault, wanted in cases]


def judge(server: Server, report, arguments=("smoke_tests",)) -> tuple[int, dict[str, str]]:
    """Exit code of the suite, and the verdict of each probe that did not pass."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--base-url", server.url, *arguments]
    command += ["--pair", "smollm2-135m", "--expect-algorithm", "tree", "--json-report", str(report)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert report.is_file(), done.stdout + done.stderr
    probes = json.loads(report.read_text())["probes"]
    return done.returncode, {p["probe"]: f"{p['verdict']}: {p['evidence']}" for p in probes if p["verdict"] != "pass"}


def assert_caught(engine: Engine, wanted: str, report, arguments=("smoke_tests",)) -> None:
    with Server(engine) as server:
        code, found = judge(server, report, arguments)
    failed = {probe for probe, evidence in found.items() if evidence.startswith("fail")}
    assert code == 1, found
    assert wanted in failed, found


@pytest.mark.skipif(not FULL, reason="the image tests run the suite against a good engine")
def test_a_good_engine_passes(tmp_path):
    with Server(Engine(VERSION, **SHAPE)) as server:
        code, found = judge(server, tmp_path / "report.json")
    assert code == 0, found


@pytest.mark.parametrize(("fault", "wanted"), chosen(BROKEN))
def test_a_broken_engine_is_caught(fault, wanted, tmp_path):
    assert_caught(ProbedEngine(VERSION, probe=fault, **SHAPE), wanted, tmp_path / "report.json")


@pytest.mark.parametrize(("broken", "wanted"), chosen(BROKEN_DRAFTERS))
def test_a_wrong_drafter_is_caught(broken, wanted, tmp_path):
    drafter = broken(PAIR / "drafter", tmp_path / "drafter")
    assert_caught(Engine(VERSION, drafter=drafter, **SHAPE), wanted, tmp_path / "report.json", ACCEPTANCE)
