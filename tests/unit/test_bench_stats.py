"""A claim of faster needs samples that say so; a median comes with how sure it is."""

import random

import pytest
from scipy.stats import binomtest

from bench.stats import claim, claim_apart, interval, sign_test

STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.3]


def test_steady_gain_in_every_pair_is_faster():
    found = claim([1.1 * x for x in STEADY], STEADY)
    assert (found["verdict"], found["wins"], found["losses"]) == ("faster", 10, 0)
    assert found["ratio"] == pytest.approx(1.1)
    assert found["interval"][0] > 1.08


def test_the_loser_is_slower():
    assert claim([0.9 * x for x in STEADY], STEADY)["verdict"] == "slower"


def test_a_gain_within_the_noise_is_undecided():
    ours = [x + (1 if i % 2 else -1) for i, x in enumerate(STEADY)]
    assert claim(ours, STEADY)["verdict"] == "undecided"


def test_few_samples_cannot_claim_whatever_they_say():
    """Five of five wins happen by chance once in 16 times on either side."""
    assert claim([2 * x for x in STEADY[:5]], STEADY[:5])["verdict"] == "undecided"
    assert claim([200.0], [100.0]) == {
        "ratio": 2.0,
        "interval": None,
        "wins": 1,
        "losses": 0,
        "p": 1.0,
        "verdict": "undecided",
    }


def test_sign_test_is_the_exact_one():
    for wins in range(12):
        for losses in range(1, 12):
            assert sign_test(wins, losses) == pytest.approx(binomtest(wins, wins + losses).pvalue)
    assert sign_test(0, 0) == 1.0


def test_nine_of_ten_pairs_must_win():
    assert sign_test(9, 1) < 0.05 < sign_test(8, 2)


def test_samples_of_different_times_are_compared_without_pairs():
    ratio, (low, high) = claim_apart([1.2 * x for x in STEADY[:7]], STEADY)
    assert ratio == pytest.approx(1.2, abs=0.01)
    assert 1.17 < low <= ratio <= high < 1.23
    assert claim_apart([2.0], STEADY)[1] is None


def test_equal_samples_are_no_pair_for_anybody():
    found = claim(STEADY, STEADY)
    assert (found["wins"], found["losses"], found["p"], found["verdict"]) == (0, 0, 1.0, "undecided")


def test_unpaired_samples_are_refused():
    with pytest.raises(ValueError, match="10 samples cannot be paired with 9"):
        claim(STEADY, STEADY[1:])


def test_interval_holds_the_median_in_most_draws():
    """At 95% the interval of the median misses the true one rarely; one that is too narrow misses it often."""
    source = random.Random(1)
    draws = [[source.gauss(50, 5) for _ in range(20)] for _ in range(60)]
    held = sum(low <= 50 <= high for low, high in map(interval, draws))
    assert held >= 52
    assert all(high - low < 10 for low, high in map(interval, draws))


def test_interval_is_the_same_each_time_and_none_for_one_value():
    assert interval(STEADY) == interval(STEADY)
    assert interval([1.0]) is None
    assert interval([3.0, 3.0, 3.0]) == [3.0, 3.0]
