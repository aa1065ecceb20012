"""Accepting and counting, on hand-made tables."""

import random

import pytest

from tests.simulation.walk import (
    Proposal,
    Walk,
    accepted_in_chain,
    accepted_in_tree,
    completion_tokens,
    pooled_accept_length,
    walk_steps,
)

# Two depths likely (10 then 20), the third a toss-up.
PROPOSAL = Proposal(
    tokens=[[10, 11], [20, 21], [30, 31]],
    logprobs=[[-0.1, -2.5], [-0.2, -2.0], [-0.7, -0.8]],
)
# Taken in this order: 10 / 10 20 / 10 20 30 / 10 20 31 / 10 21 / 11 / 11 20 / 10 21 30 / ...


@pytest.mark.parametrize(
    ("truth", "accepted"),
    [((10, 20, 30), 3), ((10, 20, 31), 2), ((10, 21, 30), 1), ((11, 20, 30), 0), ((99, 20, 30), 0)],
)
def test_chain_accepts_the_matching_prefix(truth, accepted):
    assert accepted_in_chain(PROPOSAL, truth) == accepted


@pytest.mark.parametrize(
    ("truth", "budget", "accepted"),
    [
        ((10, 20, 30), 1, 1),
        ((10, 20, 30), 2, 2),
        ((10, 20, 30), 3, 3),
        ((10, 20, 31), 3, 2),
        ((10, 20, 31), 4, 3),
        ((10, 21, 30), 4, 1),
        ((10, 21, 30), 5, 2),
        ((10, 21, 30), 8, 3),
        ((11, 20, 30), 5, 0),
        ((11, 20, 30), 6, 1),
        ((11, 20, 30), 7, 2),
        ((99, 20, 30), 14, 0),
    ],
)
def test_tree_accepts_the_deepest_matching_path(truth, budget, accepted):
    assert accepted_in_tree(PROPOSAL, truth, budget) == accepted


def test_same_token_at_two_depths_is_two_nodes():
    proposal = Proposal(tokens=[[5, 6], [5, 6]], logprobs=[[-0.1, -3.0], [-0.1, -3.0]])
    assert accepted_in_tree(proposal, (5, 5), budget=2) == 2
    assert accepted_in_tree(proposal, (6, 5), budget=2) == 0


def test_tree_of_one_candidate_equals_chain():
    rng = random.Random(0)
    for _ in range(200):
        depth = rng.randint(1, 7)
        proposal = Proposal(
            tokens=[rng.sample(range(4), 2) for _ in range(depth)],
            logprobs=[sorted((-rng.expovariate(1.0) for _ in range(2)), reverse=True) for _ in range(depth)],
        )
        truth = [rng.randrange(4) for _ in range(depth)]
        assert accepted_in_tree(proposal.top(1), truth, budget=depth) == accepted_in_chain(proposal, truth)


def test_first_token_comes_from_prefill_and_each_step_commits_its_bonus():
    seen = []

    def accepted_at(anchor):
        seen.append(anchor)
        return {0: 0, 1: 2, 4: 1}[anchor]

    assert walk_steps(7, accepted_at) == (0, 2, 1)
    assert seen == [0, 1, 4]


def test_last_step_is_counted_whole_but_its_surplus_is_not_committed():
    accepted = walk_steps(7, lambda anchor: 3)
    walk = Walk(accepted, completion_tokens(accepted, length=7, max_new_tokens=100, length_first=False))
    assert walk.accepted == (3, 3)
    assert (walk.steps, walk.committed) == (2, 7)
    assert walk.accept_length == 3.5
    assert walk.tokens_per_step == 4.0


def test_answer_that_prefill_ends_has_no_accept_length():
    walk = Walk(walk_steps(1, lambda anchor: 3), committed=1)
    assert (walk.steps, walk.accept_length, walk.tokens_per_step) == (0, None, None)


def test_pooling_weighs_answers_by_their_steps():
    assert pooled_accept_length([Walk((0, 0, 0), 4), Walk((6,), 8), Walk((), 1)]) == 13 / 4


def served(tokens, accepts, eos, max_new_tokens, length_first):
    """A server's loop told literally: (completion tokens, verify steps)."""
    output, new, steps = [tokens[0]], [tokens[0]], 0
    while True:
        stop = len(output) - len(new) + new.index(eos) + 1 if eos in new else None
        full = max_new_tokens if len(output) >= max_new_tokens else None
        if full or stop:
            return (full if length_first and full else min(filter(None, (stop, full)))), steps
        drafts = accepts[len(output) - 1]
        new = tokens[len(output) : len(output) + drafts + 1]
        output, steps = output + new, steps + 1


@pytest.mark.parametrize("length_first", [False, True])
def test_counts_equal_a_servers_loop(length_first):
    rng = random.Random(0)
    for _ in range(500):
        eos, max_new_tokens = 0, rng.randint(1, 30)
        tokens = [eos if rng.random() < 0.05 else rng.randint(1, 9) for _ in range(40)]
        accepts = [rng.randint(0, 7) for _ in tokens]
        stop = tokens.index(eos) + 1 if eos in tokens else len(tokens)
        length = min(stop, max_new_tokens)

        accepted = walk_steps(length, lambda anchor, table=accepts: table[anchor])
        committed = completion_tokens(accepted, length, max_new_tokens, length_first)
        assert (committed, len(accepted)) == served(tokens, accepts, eos, max_new_tokens, length_first)


def test_limit_looked_at_first_returns_tokens_behind_the_stop():
    # Stop token is the 9th, limit 10, and the last step runs to 12.
    accepted = (3, 2, 3)
    assert completion_tokens(accepted, length=9, max_new_tokens=10, length_first=True) == 10
    assert completion_tokens(accepted, length=9, max_new_tokens=10, length_first=False) == 9
    assert completion_tokens(accepted, length=9, max_new_tokens=13, length_first=True) == 9
