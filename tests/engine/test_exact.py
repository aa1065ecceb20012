"""In float32 a tree server's greedy tokens are those of the same server without speculation."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.conftest import FULL, TOKENS
from tests.engine.server import VERSIONS

ALL_BUDGETS = (3, 7, 8, 15, 16, 31)
# Widths below, equal to and above the block size of 8; the full run takes all of them on both versions.
SOME = [("0.5.16", 3), ("0.5.16", 15), ("0.5.23", 7), ("0.5.23", 31)]
CASES = [(version, budget) for version in VERSIONS for budget in ALL_BUDGETS] if FULL else SOME


def difference(found, expected) -> str:
    """Where two lists of answers part, for the assertion message."""
    for number, (mine, known) in enumerate(zip(found, expected, strict=True)):
        if mine.tokens != known.tokens:
            at = next(i for i, (a, b) in enumerate(zip(mine.tokens, known.tokens, strict=False)) if a != b)
            return f"prompt {number} parts at token {at}: {mine.tokens[at : at + 5]} for {known.tokens[at : at + 5]}"
    return ""


@pytest.mark.parametrize(("version", "budget"), CASES)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_greedy_tokens_equal_those_without_speculation(
    greedy, tree_server, prompts, version, budget, concurrency
):
    expected = greedy(version)
    found = tree_server(version, budget).answers(prompts, concurrency, TOKENS)
    assert not difference(found, expected)
    assert sum(a.steps for a in found) < sum(len(a.tokens) for a in found), "no candidate was ever accepted"


@pytest.mark.parametrize(("version", "budget"), CASES)
def test_tokens_stay_exact_while_requests_come_finish_and_abort(greedy, tree_server, prompts, version, budget):
    expected = greedy(version)
    server = tree_server(version, budget)
    lengths = random.Random(budget).choices(range(5, TOKENS), k=len(prompts))

    def one(number: int) -> list[int]:
        if number % 4 == 3:
            server.abort_midway(prompts[number])
        return server.generate(prompts[number], lengths[number]).tokens

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(len(prompts))))
    for number, tokens in enumerate(found):
        assert tokens == expected[number].tokens[: lengths[number]], f"prompt {number} of length {lengths[number]}"
