"""The smoke tests against the real engine: green on a good one, red on one that was broken on purpose."""

import pytest

from tests import smoke_run
from tests.engine.broken_engines import BROKEN, BROKEN_DRAFTERS, DRAFTER_CLASS, SHAPE
from tests.engine.conftest import FULL
from tests.engine.server import PAIR, Engine, Server
from tests.probe_plugin.probed_engine import ProbedEngine

VERSION = "0.5.16"
ACCEPTANCE = ("--class", DRAFTER_CLASS, "smoke_tests/test_acceptance.py")
# Each costs a start and a suite, so a plain run takes one that no other test would see.
QUICK = {"greedy_sampling"}


def chosen(faults: dict) -> list:
    """Cases of this run, named after the fault."""
    cases = faults.items() if FULL else [case for case in faults.items() if case[0] in QUICK]
    return [pytest.param(fault, wanted, id=getattr(fault, "__name__", fault)) for fault, wanted in cases]


def judge(engine: Engine, report, arguments=("smoke_tests",)) -> tuple[int, dict[str, str]]:
    """Exit code of the suite, and the verdict of each probe that did not pass."""
    with Server(engine) as server:
        code, said = smoke_run.judge(server.url, report, *arguments, "--expect-algorithm", "tree")
    return code, smoke_run.not_passed(said)


def assert_caught(engine: Engine, wanted: str, report, arguments=("smoke_tests",)) -> None:
    code, found = judge(engine, report, arguments)
    assert smoke_run.is_caught(code, found, wanted), found


@pytest.mark.skipif(not FULL, reason="the image tests run the suite against a good engine")
def test_a_good_engine_passes(tmp_path):
    code, found = judge(Engine(VERSION, **SHAPE), tmp_path / "report.json")
    assert code == 0, found


@pytest.mark.parametrize(("fault", "wanted"), chosen(BROKEN))
def test_a_broken_engine_is_caught(fault, wanted, tmp_path):
    assert_caught(ProbedEngine(VERSION, probe=fault, **SHAPE), wanted, tmp_path / "report.json")


@pytest.mark.parametrize(("broken", "wanted"), chosen(BROKEN_DRAFTERS))
def test_a_wrong_drafter_is_caught(broken, wanted, tmp_path):
    drafter = broken(PAIR / "drafter", tmp_path / "drafter")
    assert_caught(Engine(VERSION, drafter=drafter, **SHAPE), wanted, tmp_path / "report.json", ACCEPTANCE)
