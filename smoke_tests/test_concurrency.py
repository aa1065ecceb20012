"""The answers do not depend on who else is asking."""

import time
from concurrent.futures import ThreadPoolExecutor

from .company import ask, company, expect_as_alone, other_than_alone
from .verdict import excerpt, expect

LIKELY = "requests of one batch that share KV slots, masks or sampling state"
# Requests for each one that the server runs at once.
ROUNDS, MORE_ROUNDS = 2, 4


def test_concurrency(target, server, questions, sequential, evidence):
    at_once = target.concurrency
    if target.thorough:
        asked = company(questions, max(MORE_ROUNDS * at_once, 2 * len(questions)))
    else:
        # Short answers, so that many company changes fit into the time.
        brief = sorted(questions, key=lambda q: sequential[q.ask].completion_tokens)[: max(4, len(questions) // 2)]
        asked = company(brief, ROUNDS * at_once)
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda i: ask(server, asked[i], streamed=i % 3 == 2), range(len(asked))))
    speed = sum(answer.completion_tokens for answer in answers) / (time.monotonic() - began)
    judge(target, list(zip(asked, answers, strict=True)), sequential, evidence, speed)


def judge(target, pairs, sequential, evidence, speed):
    wrong = [(q, a) for q, a in pairs if q.answered_by(sequential[q.ask].text) and not q.answered_by(a.text)]
    differing = other_than_alone(pairs, sequential)
    at_once = target.concurrency
    evidence.say(
        f"{len(pairs)} answers, {at_once} at once: {len(wrong)} wrong, {len(differing)} differ, {speed:.1f} tok/s",
        requests=len(pairs),
        concurrency=at_once,
        wrong=len(wrong),
        differing=len(differing),
        tokens_per_second=speed,
    )
    for question, answer in wrong[:1]:
        expect(
            False,
            f"{question.answer!r} in the answer to {question.ask!r} among {at_once} at once, as alone",
            f"{excerpt(answer.text)} ({len(wrong)} of {len(pairs)} wrong)",
            LIKELY,
        )
    expect_as_alone(target.pair, len(pairs), differing, sequential, LIKELY)
