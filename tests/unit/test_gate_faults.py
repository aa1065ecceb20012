"""Every fault of the fault server fails the probe that is there for it, and that probe names the kind of fault."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.fault_server import suite
from tests.fault_server.cases import AS_MEANT, BASELINE_CASES, CASES
from tests.fault_server.faults import BY_NAME

# Two runs at a time: several faults only make the suite wait.
AT_ONCE = 2


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, Future[suite.Outcome]]:
    """By fault: the run of the smoke tests, started ahead of its test."""
    folder = tmp_path_factory.mktemp("gate")
    pool = ThreadPoolExecutor(AT_ONCE)
    yield {
        case.fault: pool.submit(
            suite.run, BY_NAME[case.fault], folder / case.fault, [*AS_MEANT, *case.options], case.claims
        )
        for case in CASES
    }
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_fault_fails_the_probe_that_is_there_for_it(case, outcomes):
    outcome = outcomes[case.fault].result()
    assert outcome.exit_code == (2 if case.stopped else 1), outcome.output
    assert case.stopped in (outcome.report["stopped"] or "")
    failed = outcome.evidence("fail")
    assert set(failed) == set(case.fails), outcome.output
    for probe, words in case.fails.items():
        assert words in failed[probe]


def test_every_fault_has_its_case():
    assert set(BY_NAME) == {case.fault for case in (*CASES, *BASELINE_CASES) if case.fault}
