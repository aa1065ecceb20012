"""Loops are told from text."""

import pytest

from smoke_tests.repetition import longest_run, repeated_share


@pytest.mark.parametrize(("tokens", "run"), [([], 0), ([5], 1), ([1, 1, 2, 2, 2, 1], 3), ("abab", 1)])
def test_longest_run(tokens, run):
    assert longest_run(tokens) == run


@pytest.mark.parametrize(
    ("tokens", "share"),
    [
        (range(20), 0.0),
        ([1, 2, 3], 0.0),
        ([7] * 9, 5 / 6),
        ([1, 2] * 10, 15 / 17),
        ([1, 2, 3, 4, 1, 2, 3, 4], 0.2),
    ],
)
def test_repeated_share(tokens, share):
    assert repeated_share(list(tokens)) == pytest.approx(share)
