"""What the smoke tests find by the recorded arms of the same pair: other tokens, and speculation that does not pay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fault_server import suite
from tests.fault_server.behaviour import Good
from tests.fault_server.cases import AS_MEANT, BASELINE_CASES, BY_ARM, FULL, PAYS, Case
from tests.fault_server.faults import BY_NAME


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> dict:
    """The baseline of a good tree, written by the suite."""
    folder = tmp_path_factory.mktemp("baseline")
    path = folder / "baseline.json"
    outcome = suite.run(Good, folder / "run", [*AS_MEANT, *FULL, "--record-baseline", str(path)], {})
    assert outcome.exit_code == 0, outcome.output
    return json.loads(path.read_text(encoding="utf-8"))


def judged(case: Case, recorded: dict, folder: Path) -> suite.Outcome:
    """The suite with a baseline of the recorded tree and other arms that say the same, at their own speeds."""
    tree = recorded["arms"]["tree"]
    speed = tree["tokens_per_second"]
    others = {kind: {**tree, "kind": kind, "tokens_per_second": share * speed} for kind, share in case.arms.items()}
    path = folder / "baseline.json"
    path.write_text(json.dumps(recorded | {"arms": {"tree": tree, **others}}), encoding="utf-8")
    behaviour = BY_NAME[case.fault] if case.fault else Good
    return suite.run(behaviour, folder / "run", [*AS_MEANT, *case.options, "--baseline", str(path)], case.claims)


def test_a_tree_that_is_fastest_and_says_the_same_passes(recorded, tmp_path):
    good = Case("", options=FULL, claims={"claims_speed": True}, arms=PAYS)
    outcome = judged(good, recorded, tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert set(outcome.evidence("pass")) >= set(BY_ARM)


@pytest.mark.parametrize("case", BASELINE_CASES, ids=lambda case: case.fault or "a chain that lost to ar")
def test_fault_fails_the_probe_that_is_there_for_it(case, recorded, tmp_path):
    outcome = judged(case, recorded, tmp_path)
    assert outcome.exit_code == 1, outcome.output
    failed = outcome.evidence("fail")
    assert set(failed) == set(case.fails), outcome.output
    for probe, words in case.fails.items():
        assert words in failed[probe]
