"""Recorded arms are kept by kind and compared where they can be."""

import json

import pytest

from smoke_tests import baseline
from smoke_tests.company import company
from smoke_tests.report import Evidence
from smoke_tests.speed import compare, parted
from smoke_tests.verdict import ProbeError


def arm(kind, speed=100.0, budget=None):
    return baseline.Arm(kind, "p", "0.5.16", budget, 4, speed, {"Why?": [1, 2, 3]})


def test_arms_are_kept_by_kind(tmp_path):
    path = tmp_path / "state/b.json"
    for one in (arm("ar", 90), arm("chain", budget=7), arm("ar", 80)):
        baseline.add(path, one)
    assert baseline.load(path) == {"ar": arm("ar", 80), "chain": arm("chain", budget=7)}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 2, "arms": {}}', '{"schema": 1, "arms": {"ar": {}}}'])
def test_other_file_is_refused(tmp_path, content):
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(ProbeError, match="record it anew"):
        baseline.load(path)
    with pytest.raises(ProbeError):
        baseline.add(path, arm("ar"))
    assert path.read_text() == content


class Claims:
    """What `compare` reads of a target and its pair."""

    concurrency, name = 4, "p"

    def __init__(self, claims_speed):
        self.claims_speed = claims_speed


def judged(kind, than, speeds, claims_speed=True):
    arms = {k: arm(k, speed, budget=15) for k, speed in speeds.items()}
    evidence, pair = Evidence(), Claims(claims_speed)
    compare(kind, than, pair, pair, arms, evidence)
    return evidence.line


def test_slower_arm_fails_with_numbers_and_cure():
    assert judged("tree", "chain", {"tree": 120, "chain": 100}) == "tree 120.0, chain 100.0 tok/s at 4 at once"
    with pytest.raises(ProbeError, match="100.0 tok/s at 4 at once; came 90.0; .*lower DDTREE_BUDGET"):
        judged("tree", "chain", {"tree": 90, "chain": 100})
    with pytest.raises(ProbeError, match="set DDTREE_ALGORITHM=ar"):
        judged("chain", "ar", {"chain": 90, "ar": 100})


def test_speed_that_is_not_claimed_is_only_told():
    with pytest.raises(pytest.skip.Exception, match="tree 90.0, chain 100.0 .* claims no speed"):
        judged("tree", "chain", {"tree": 90, "chain": 100}, claims_speed=False)
    with pytest.raises(pytest.skip.Exception, match="no ar is recorded"):
        judged("chain", "ar", {"chain": 90})


@pytest.mark.parametrize(("other", "place"), [([1, 2, 4], 2), ([1], 1), ([1, 2, 3, 4], 3), ([9], 0)])
def test_place_where_answers_part(other, place):
    assert parted([1, 2, 3], other) == place


def test_company_changes_with_each_round():
    assert company("abc", 7) == list("abcbcac")[:7]
    assert company(["a"], 3) == ["a"] * 3


def test_file_is_plain_json(tmp_path):
    baseline.add(tmp_path / "b.json", arm("ar"))
    assert json.loads((tmp_path / "b.json").read_text())["arms"]["ar"]["tokens_per_second"] == 100.0
