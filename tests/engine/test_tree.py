"""In float32 a tree server says what the server without speculation says, and accepts what it must accept."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.engine.conftest import FULL, TOKENS
from tests.engine.server import VERSIONS, Answer, Engine, Server, difference

# Widths below, equal to and above the block size of 8; top-k 1 is the chain.
BUDGETS = (3, 7, 8, 15, 16, 31)
SHAPES = [(7, 1), *[(budget, 4) for budget in BUDGETS]]
OTHER_TREES = [(budget, 8) for budget in BUDGETS]
SOME = [("0.5.16", 7, 1), ("0.5.16", 3, 4), ("0.5.16", 15, 8), ("0.5.23", 8, 4), ("0.5.23", 31, 4)]
# What requests do to each other depends on the width, not on the tree's form: a plain top-k is enough for it. The
# list begins the longer one, because pytest groups tests of one server by their place in it.
CROWDED = [(version, *shape) for version in VERSIONS for shape in SHAPES] if FULL else SOME
CHOSEN = [*CROWDED, *[(version, *shape) for version in VERSIONS for shape in OTHER_TREES]] if FULL else SOME
NAME = "{0[0]}-B{0[1]}-K{0[2]}".format
crowded = pytest.mark.parametrize("tree", CROWDED, ids=NAME, indirect=True)


@dataclass
class Tree:
    """A running tree server and its answers to the prompts, one at a time."""

    engine: Engine
    server: Server
    answers: list[Answer]


@pytest.fixture(scope="session", params=CHOSEN, ids=NAME)
def tree(request, prompts):
    engine = Engine(*request.param)
    with Server(engine) as server:
        yield Tree(engine, server, server.answers(prompts, 1, TOKENS))


def test_greedy_tokens_equal_those_without_speculation(greedy, tree):
    assert not difference(tree.answers, greedy(tree.engine.version))


def test_accept_length_is_that_of_the_independent_simulation(simulated, tree):
    committed = sum(len(answer.tokens) for answer in tree.answers)
    served = committed / sum(answer.steps for answer in tree.answers)
    assert served == pytest.approx(simulated(tree.engine.budget, tree.engine.top_k), rel=0.01)


@crowded
def test_tokens_stay_exact_four_at_once(greedy, tree, prompts):
    # The prompts were served before, so these requests hit the prefix cache as well.
    assert not difference(tree.server.answers(prompts, 4, TOKENS), greedy(tree.engine.version))


@crowded
def test_tokens_stay_exact_while_requests_come_finish_and_abort(greedy, tree, prompts):
    expected = greedy(tree.engine.version)
    lengths = random.Random(tree.engine.budget).choices(range(5, TOKENS), k=len(prompts))

    def one(number: int) -> list[int]:
        if number % 4 == 3:
            tree.server.abort_midway(prompts[number])
        return tree.server.generate(prompts[number], lengths[number]).tokens

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(len(prompts))))
    for number, tokens in enumerate(found):
        assert tokens == expected[number].tokens[: lengths[number]], f"prompt {number} of length {lengths[number]}"
