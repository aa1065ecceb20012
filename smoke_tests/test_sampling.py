"""Answers at a temperature above 0 differ, and are still right."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from .verdict import excerpt, expect

GREEDY = "a verification that is greedy whatever the temperature, or a fixed random seed"


def test_sampling(target, server, expected, evidence):
    wanted = expected.sampling
    if wanted is None:
        pytest.skip(f"the pair {expected.name} claims nothing about temperatures above 0")
    ids = server.chat_ids(wanted.ask)
    sampling = {"temperature": wanted.temperature, "max_new_tokens": wanted.max_tokens}
    with ThreadPoolExecutor(target.concurrency) as pool:
        replies = list(pool.map(lambda _: server.generate(ids, **sampling), range(wanted.samples)))
    answers = [reply.text for reply in replies]
    distinct, openings = len(set(answers)), len({reply.output_ids[:1] for reply in replies})
    wrong = [answer for answer in answers if not re.search(wanted.answer, answer, re.IGNORECASE)]
    right = len(answers) - len(wrong)
    seen = f"{distinct} distinct and {right} right of {wanted.samples} at temperature {wanted.temperature:g}"
    evidence.say(seen, distinct=distinct, right=right, samples=wanted.samples)
    expect(
        distinct >= wanted.least_distinct,
        f"at least {wanted.least_distinct} different answers of {wanted.samples}",
        f"{distinct}, as {excerpt(answers[0])}",
        GREEDY,
    )
    # The first token comes from the prefill, all others from verification: a greedy one makes an answer per opening.
    expect(
        distinct > openings or openings == wanted.samples,
        "answers with the same first token to go on differently",
        f"{openings} first tokens and {distinct} different answers, as {excerpt(answers[0])}",
        GREEDY,
    )
    expect(
        right >= wanted.least_right,
        f"{wanted.answer!r} in at least {wanted.least_right} of {wanted.samples} answers",
        f"{right}, and {excerpt(''.join(wrong[:1]))}",
        "drafts accepted that the target would hardly say, or a temperature applied twice",
    )
