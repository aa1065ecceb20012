"""The smoke tests pass a good server, have no probe that no fault can fail, and say so on the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fault_server import suite
from tests.fault_server.behaviour import Good, Shared, Structured
from tests.fault_server.cases import AS_MEANT, BASELINE_CASES, CASES, SOAK

ROOT = suite.SMOKE_TESTS.parent


@pytest.fixture(scope="module")
def thorough(tmp_path_factory) -> suite.Outcome:
    """Every probe there is, against a server without a fault."""
    return suite.run(Good, tmp_path_factory.mktemp("gate") / "run", [*AS_MEANT, *SOAK], {})


def test_nothing_fails_without_a_fault(thorough):
    assert thorough.exit_code == 0, thorough.output
    assert not thorough.evidence("fail")


@pytest.mark.parametrize(
    ("behaviour", "claims", "judged"),
    [(Good, {}, {"ready", "concurrency", "json_schema"}), (Structured, {"tool_call": True}, {"tool_call"})],
)
def test_nothing_fails_in_a_quick_run(behaviour, claims, judged, tmp_path):
    outcome = suite.run(behaviour, tmp_path / "run", AS_MEANT, claims)
    assert outcome.exit_code == 0, outcome.output
    assert not outcome.evidence("fail")
    assert judged <= set(outcome.evidence("pass"))


def test_other_clients_of_the_server_are_no_fault(tmp_path):
    outcome = suite.run(Shared, tmp_path / "run", AS_MEANT, {})
    assert outcome.exit_code == 0, outcome.output
    assert "other clients keep the server busy" in outcome.evidence("inconclusive")["abort"]


def test_every_probe_can_be_failed_by_a_fault(thorough):
    """A probe that nothing can fail proves nothing."""
    probes = {probe["probe"] for probe in thorough.report["probes"]}
    assert probes == {probe for case in (*CASES, *BASELINE_CASES) for probe in case.fails}


def test_a_fault_served_by_hand_is_found_from_the_command_line():
    served = subprocess.Popen(
        [sys.executable, "-m", "tests.fault_server", "WrongFact", "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = served.stdout.readline().split()[-1]
        run = smoke_tests(url)
    finally:
        served.kill()
        served.wait()
    assert run.returncode == 1
    assert "'Tokyo' in the answer to" in run.stdout


def test_no_server_is_no_verdict():
    run = smoke_tests("http://127.0.0.1:9")
    assert run.returncode == 2
    assert "a server that is not there" in run.stdout + run.stderr


def smoke_tests(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "smoke_tests", "-p", "no:cacheprovider", "--base-url", url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
