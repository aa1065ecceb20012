"""Requests that come, finish and are aborted while others run."""

import random
from concurrent.futures import ThreadPoolExecutor

from tests.engine.conftest import TOKENS


def assert_exact_under_churn(server, prompts: list[str], expected: list, seed: int) -> None:
    """Ask four at once for answers of mixed lengths, every fourth after one that is aborted midway.

    expected: for each prompt an answer of TOKENS tokens, of which each must give its beginning. seed: of the lengths.
    """
    lengths = random.Random(seed).choices(range(5, TOKENS), k=len(prompts))

    def one(number: int) -> list[int]:
        if number % 4 == 3:
            server.abort_midway(prompts[number])
        return server.generate(prompts[number], lengths[number]).tokens

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(len(prompts))))
    for number, tokens in enumerate(found):
        assert tokens == expected[number].tokens[: lengths[number]], f"prompt {number} of length {lengths[number]}"
