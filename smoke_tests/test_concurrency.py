"""The answers do not depend on who else is asking."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

from .verdict import difference, excerpt, expect

LIKELY = "requests of one batch that share KV slots, masks or sampling state"


def test_concurrency(target, server, expected, sequential, evidence):
    at_once = target.concurrency
    asked = rotated(expected.questions, at_once)
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda q: server.chat(q.ask, max_tokens=expected.answer_tokens), asked))
    speed = sum(answer.completion_tokens for answer in answers) / (time.monotonic() - began)

    pairs = list(zip(asked, answers, strict=True))
    wrong = [(q, a) for q, a in pairs if q.answered_by(sequential[q.ask]) and not q.answered_by(a.text)]
    differing = [(q, a) for q, a in pairs if a.text != sequential[q.ask]]
    evidence.say(
        f"{len(asked)} answers, {at_once} at once: {len(wrong)} wrong, {len(differing)} differ, {speed:.1f} tok/s",
        requests=len(asked),
        concurrency=at_once,
        wrong=len(wrong),
        differing=len(differing),
        tokens_per_second=speed,
    )
    for question, answer in wrong[:1]:
        expect(
            False,
            f"{question.answer!r} in the answer to {question.ask!r} among {at_once} at once, as alone",
            f"{excerpt(answer.text)} ({len(wrong)} of {len(asked)} wrong)",
            LIKELY,
        )
    allowed = math.floor(expected.max_differing_share * len(asked))
    if len(differing) > allowed:
        question, answer = differing[0]
        alone, here = difference(sequential[question.ask], answer.text)
        expect(
            False,
            f"at most {allowed} of {len(asked)} answers to differ from the sequential ones",
            f"{len(differing)}, as {here} instead of {alone}",
            LIKELY,
        )


def rotated(questions, rounds):
    """All questions `rounds` times, each time from another start, so that their company changes."""
    starts = (i % len(questions) for i in range(rounds))
    return [question for start in starts for question in questions[start:] + questions[:start]]
