"""Penalties and biases beside the tree: the tokens are those of the same server without speculation."""

import pytest

from tests.engine.feature_requests import BIASED, PENALISED

# The requests without a penalty that the others are compared with.
FREE = [number for number, entry in enumerate(PENALISED.sampling) if set(entry) == {"max_new_tokens"}]


@pytest.mark.parametrize("name", ["penalised", "biased"])
def test_tokens_equal_those_without_speculation(features, name):
    plain, tree = features[name].tokens()
    assert tree == plain
    assert features[name].accept_length() > 1.2, "the tree hardly took part"


def test_the_penalties_changed_the_text(features):
    """Negative control: the comparison would not see penalties that both servers ignore."""
    plain, _ = features["penalised"].tokens()
    free = {tuple(PENALISED.prompts[number]): plain[number] for number in FREE}
    for number, (prompt, found) in enumerate(zip(PENALISED.prompts, plain, strict=True)):
        if number not in FREE:
            assert found != free[tuple(prompt)][: len(found)], PENALISED.sampling[number]


def test_a_least_length_holds_and_is_not_the_greatest(features):
    _, tree = features["biased"].tokens()
    lengths = [
        (entry.get("min_new_tokens", 0), len(found), entry["max_new_tokens"])
        for found, entry in zip(tree, BIASED.sampling, strict=True)
    ]
    assert all(least <= length <= most for least, length, most in lengths)
    assert any(0 < least < length < most for least, length, most in lengths)
