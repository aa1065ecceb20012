"""Accept length as the smoke tests compute it from what a server reports."""

import pytest

from smoke_tests.acceptance import Acceptance, added, expected_for, gauge_band, of_request, window
from smoke_tests.client import Answer
from smoke_tests.pair import Expected
from smoke_tests.verdict import ProbeError


def answer(tokens=8, **changed):
    """Prefill, then steps that accept 2, 0 and 3 drafts, the last cut by one: 1 + 3 + 1 + (4 - 1) tokens."""
    meta = {
        "spec_verify_ct": 3,
        "spec_num_correct_drafts": 5,
        "spec_accept_length": tokens / 3,
        "spec_correct_drafts_histogram": [1, 0, 1, 1],
    }
    meta |= changed
    meta = {key: value for key, value in meta.items() if value is not None}
    return Answer("text", "length", None, prompt_tokens=5, completion_tokens=tokens, meta=meta)


def test_consistent_request_is_counted():
    counts = of_request(answer())
    assert counts == Acceptance(tokens=8, steps=3, drafts=5, histogram=(1, 0, 1, 1))
    assert counts.accept_length == pytest.approx(8 / 3)
    assert counts.committed_per_step == pytest.approx(8 / 3)


def test_retracted_request_has_one_more_prefill_token():
    assert of_request(answer(tokens=10, num_retractions=1)).tokens == 10
    with pytest.raises(ProbeError, match="surplus of -1"):
        of_request(answer(tokens=10))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"spec_verify_ct": None}, "no spec_verify_ct"),
        ({"spec_accept_length": 1.0}, "1.0000"),
        ({"spec_num_correct_drafts": 6}, "6 accepted drafts"),
        ({"spec_correct_drafts_histogram": [2, 0, 1, 1]}, "over 4 steps"),
        ({"tokens": 5}, "surplus of 4"),
    ],
)
def test_contradicting_request_is_refused(changed, message):
    with pytest.raises(ProbeError, match=message):
        of_request(answer(**changed))


def test_requests_add_up():
    total = added([Acceptance(8, 3, 5, (1, 0, 1, 1)), Acceptance(3, 2, 0, (2,))])
    assert total == Acceptance(11, 5, 5, (3, 0, 1, 1))


RECORDED = [
    Expected("DDTREE", 15, 8, {"chat": 2.3}),
    Expected("DDTREE", 15, 4, {"chat": 2.2}),
    Expected("DDTREE", 7, 8, {"chat": 2.0}),
    Expected("DFLASH", 7, None, {"chat": 1.8}),
]


@pytest.mark.parametrize(
    ("engine", "index"),
    [(("DDTREE", 15, 4), 1), (("DDTREE", 7, None), 2), (("DDTREE", 7, 8), 2), (("DFLASH", 7, None), 3)],
)
def test_recorded_engine_is_found(engine, index):
    assert expected_for(RECORDED, *engine) == RECORDED[index]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (("DDTREE", 31, 8), "came none .*measure them"),
        (("DDTREE", 7, 4), "came none"),
        (("DDTREE", 15, None), "came 2 that differ in top-k"),
    ],
)
def test_unrecorded_engine_is_a_failure(engine, message):
    with pytest.raises(ProbeError, match=message):
        expected_for(RECORDED, *engine)


def test_window_has_two_bounds():
    assert window(2.5, 0.1) == (2.25, 2.75)


@pytest.mark.parametrize(
    ("recorded", "chain"),
    [
        (Expected("DDTREE", 7, 1, {}), True),
        (Expected("DFLASH", 7, None, {}), True),
        (Expected("DDTREE", 7, 4, {}), False),
        (Expected("DDTREE", 15, 1, {}), False),
    ],
)
def test_chain_has_one_candidate_for_each_depth(recorded, chain):
    assert recorded.is_chain_of(8) is chain
    assert not recorded.is_chain_of(None)


def test_gauge_band_follows_the_last_requests():
    early, late = Acceptance(99, 80, 0, (80,)), Acceptance(240, 80, 160, (0, 0, 80))
    assert gauge_band([early, late], interval=40) == pytest.approx((2.95, 3.05))
    assert gauge_band([late, early], interval=40) == pytest.approx((0.95, 1.05))
    low, high = gauge_band([early, late], interval=60)
    assert low < 2 < high


def test_gauge_is_not_judged_after_too_few_steps():
    assert gauge_band([Acceptance(99, 79, 20, (60, 19))], interval=40) is None
