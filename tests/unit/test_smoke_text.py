"""Loops, mixed scripts and few words over and over are told from text."""

import pytest

from smoke_tests.text import entropy, foreign_share, longest_run, repeated_share


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


@pytest.mark.parametrize(
    ("text", "script", "share"),
    [
        ("Übergrößen, 12!", "LATIN", 0.0),
        ("abc где", "LATIN", 0.5),
        ("где", "CYRILLIC", 0.0),
        ("東京", "CJK", 0.0),
        ("ab\ufffd\ufffd", "LATIN", 0.5),
        ("123 !?", "LATIN", 0.0),
    ],
)
def test_foreign_share(text, script, share):
    assert foreign_share(text, script) == pytest.approx(share)


@pytest.mark.parametrize(("tokens", "bits"), [([], 0.0), ([1] * 8, 0.0), ([1, 2] * 4, 1.0), (range(16), 4.0)])
def test_entropy(tokens, bits):
    assert entropy(list(tokens)) == pytest.approx(bits)
