"""A fact is found anywhere in a prompt as long as the server serves, and not a token more is taken."""

import secrets

import pytest

from .verdict import excerpt, expect

ANSWER_TOKENS = 24
COLOURS = ("red", "blue", "green", "white", "black", "brown", "grey", "pink")
THINGS = ("apples", "books", "lamps", "chairs", "bottles", "coats", "tools", "maps", "plates", "shoes", "clocks")
QUESTION = "\n\nWhat is the code of the vault?"


@pytest.mark.full
def test_long_context(server, expected, evidence):
    wanted = expected.needle
    if wanted is None:
        pytest.skip(f"the pair {expected.name} claims no long context")
    served = server.context_length()
    limit = min(wanted.max_prompt_tokens, served - 2 * ANSWER_TOKENS)
    lines = lines_within(server, limit)
    lengths = []
    for depth in wanted.depths:
        code = str(1000 + secrets.randbelow(9000))
        ids = server.chat_ids(haystack(lines, depth, code))
        answer = server.generate(ids, max_new_tokens=ANSWER_TOKENS)
        expect(
            code in answer.text,
            f"the code {code} out of {len(ids)} tokens, at {depth:.0%} of them",
            excerpt(answer.text),
            "wrong positions or KV slots far from the start of a sequence, or a wrong rope setting",
        )
        lengths.append(len(ids))
    evidence.say(
        f"found at {', '.join(f'{depth:.0%}' for depth in wanted.depths)} of {max(lengths)} tokens, {served} served",
        prompt_tokens=max(lengths),
        served=served,
    )


@pytest.mark.full
def test_context_limit(server, expected, evidence):
    served = server.context_length()
    ids = server.chat_ids(haystack(8, 0.5, "1234"))
    # A prompt that fills the context but for a few tokens, and asks for more than there are.
    prompt = (ids * (served // len(ids) + 1))[: served - ANSWER_TOKENS]
    answer = server.generate(prompt, max_new_tokens=4, ignore_eos=True)
    expect(
        (answer.prompt_tokens, answer.completion_tokens) == (len(prompt), 4),
        f"{len(prompt)} prompt tokens and 4 more",
        f"{answer.prompt_tokens} and {answer.completion_tokens}",
        "a prompt cut short at the context's end",
    )
    evidence.say(f"4 tokens behind a prompt of {len(prompt)}, {served} served")


def haystack(lines: int, depth: float, code: str) -> str:
    rooms = [f"Room {i + 1} holds {COLOURS[i * 5 % 8]} {THINGS[i * 7 % 11]}." for i in range(lines)]
    rooms.insert(int(lines * depth), f"The code of the vault is {code}.")
    return " ".join(rooms) + QUESTION


def lines_within(server, tokens: int) -> int:
    """How many lines of a haystack fit into so many tokens, to within one line."""
    # A line has more than four tokens.
    low, high = 1, max(2, tokens // 4)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(server.chat_ids(haystack(middle, 0.5, "1234"))) <= tokens else (low, middle)
    return low
