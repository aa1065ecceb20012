"""Who is asked together, and whether the answers are those of being asked alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

from .client import Answer, Server
from .pair import Pair, Question
from .verdict import difference, expect

T = TypeVar("T")


def company(asked: Sequence[T], count: int) -> list[T]:
    """`count` of `asked`: all in turn, each round from another start, so that their company changes."""
    starts = (i % len(asked) for i in itertools.count())
    rounds = (itertools.chain(asked[start:], asked[:start]) for start in starts)
    return list(itertools.islice(itertools.chain.from_iterable(rounds), count))


def ask(server: Server, question: Question, streamed: bool) -> Answer:
    """One answer at temperature 0 over the OpenAI interface, streamed or whole."""
    if streamed:
        return server.chat_streamed(question.ask, max_tokens=question.max_tokens).answer
    return server.chat(question.ask, max_tokens=question.max_tokens)


def other_than_alone(
    answered: Sequence[tuple[Question, Answer]], sequential: Mapping[str, Answer]
) -> list[tuple[Question, Answer]]:
    """Those answers whose text is not that of `sequential`, by question asked alone."""
    return [(question, answer) for question, answer in answered if answer.text != sequential[question.ask].text]


def expect_as_alone(
    pair: Pair,
    total: int,
    differing: Sequence[tuple[Question, Answer]],
    sequential: Mapping[str, Answer],
    likely: str,
) -> None:
    """Raises ProbeError when more of `total` answers are `differing` than the pair allows."""
    allowed = pair.allowed_differing(total)
    if len(differing) <= allowed:
        return
    question, answer = differing[0]
    alone, here = difference(sequential[question.ask].text, answer.text)
    expect(
        False,
        f"at most {allowed} of {total} answers to differ from the sequential ones",
        f"{len(differing)}, as {here} instead of {alone}",
        likely,
    )
