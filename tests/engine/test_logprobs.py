"""Log-probabilities beside the tree are those of the same server without speculation."""

import pytest

TOLERANCE = 1e-4
# Pairs of value and token, of every token; and lists of such pairs, the likeliest tokens or the ones asked for.
SINGLE = ("output_token_logprobs", "input_token_logprobs")
SEVERAL = ("output_top_logprobs", "output_token_ids_logprobs", "input_top_logprobs", "input_token_ids_logprobs")


def assert_close(found: list, known: list) -> None:
    """Pairs of (value or None, token, text) with the same tokens in the same order, and close values."""
    assert [pair[1] for pair in found] == [pair[1] for pair in known]
    mine, other = ([pair[0] for pair in pairs if pair[0] is not None] for pairs in (found, known))
    assert mine == pytest.approx(other, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["scored", "scored beside sampled", "constrained and penalised"])
def test_logprobs_equal_those_without_speculation(features, name):
    for mine, known in zip(features[name].tree, features[name].plain, strict=True):
        if mine["output_ids"] != known["output_ids"]:
            assert name == "scored beside sampled" and mine is features[name].tree[-1], "another text"
            continue
        found, wanted = mine["meta_info"], known["meta_info"]
        assert len(found["output_token_logprobs"]) == len(mine["output_ids"])
        for field in SINGLE:
            assert_close(found[field], wanted[field])
        for field in SEVERAL:
            assert len(found[field]) == len(wanted[field]) > 0
            for position, other in zip(found[field], wanted[field], strict=True):
                assert_close(position or [], other or [])


def test_several_tokens_came_from_one_step(features):
    assert features["scored"].accept_length() > 1.2
