"""Whether a cell answers rightly: the smoke tests' questions and coding tasks, and accept length by category.

A failure that the harness caused (an answer cut short, code in another block than the graded one, no answer at all) is
told from a wrong answer: it says nothing about the model, and nothing in favour of the cell either.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from smoke_tests import acceptance, grading
from smoke_tests.client import Answer, Server
from smoke_tests.pair import Pair, Question, Task
from smoke_tests.sandbox import NoSandboxError
from smoke_tests.text import repeated_share
from smoke_tests.verdict import ProbeError

RIGHT, WRONG, HARNESS = "right", "wrong", "harness"
LOOPING_SHARE = 0.5  # of 4-grams that occurred before: such an answer is not cut short, it never ends
#: By how much the share of right answers may fall. In float32 speculation changes no token; in other dtypes near-ties
#: may go the other way, for a server without speculation at another batch size as well.
MARGIN = {"float32": 0.0}
OTHER_MARGIN = 0.1


@dataclass(frozen=True)
class Outcome:
    """verdict: RIGHT, WRONG or HARNESS. why: empty for a right answer."""

    ask: str
    verdict: str
    why: str = ""


def measure(url: str, expected: Pair, concurrency: int, speculative: bool) -> dict:
    """Ask the pair's quick questions, coding tasks and acceptance prompts, `concurrency` at once."""
    server = Server(url)
    questions = [q for group in expected.questions.values() for q in group if q.quick]
    tasks = list(expected.coding.tasks) if expected.coding else []
    prompts = [(name, p) for name, group in expected.acceptance["quick"].prompts.items() for p in group]
    with ThreadPoolExecutor(concurrency) as pool:
        known = list(pool.map(lambda q: _known(server, q), questions))
        coding = list(pool.map(lambda task: _coded(server, expected, task), tasks))
        lengths = _accept_lengths(pool, server, expected, prompts) if speculative else None
    return {"known": _tally(known), "coding": _tally(coding), "accept_length": lengths}


def judged(ask: str, answer: Callable[[], Answer], judge: Callable[[Answer], tuple[str, str]]) -> Outcome:
    try:
        return Outcome(ask, *judge(answer()))
    except (ProbeError, NoSandboxError) as error:
        return Outcome(ask, HARNESS, str(error))


def judge_question(question: Question, answer: Answer) -> tuple[str, str]:
    """Verdict and reason."""
    if question.answered_by(answer.text):
        return RIGHT, ""
    if answer.finish == "length" and not looping(answer):
        return HARNESS, f"cut short after {answer.completion_tokens} tokens: {answer.text[:80]!r}"
    return WRONG, f"expected {question.answer!r}, came {answer.text[:80]!r}"


def judge_task(task: Task, answer: Answer) -> tuple[str, str]:
    """Verdict and reason. Raises NoSandboxError where generated code cannot be run safely."""
    if grading.solved(task, answer.text):
        return RIGHT, ""
    code = grading.code_in(answer.text)
    if any(grading.solved(task, block) for block in _blocks(answer.text) if block != code):
        return HARNESS, "solved by another code block than the first, which is graded"
    if answer.finish == "length" and not _compiles(code) and not looping(answer):
        return HARNESS, f"code cut short after {answer.completion_tokens} tokens"
    return WRONG, f"not solved by {code[:80]!r}"


def looping(answer: Answer) -> bool:
    return repeated_share(answer.output_ids or answer.text.split()) > LOOPING_SHARE


def verdict(ours: dict, base: dict, dtype: str) -> tuple[str, str]:
    """ "same", "worse" or "unknown" beside a baseline's quality at the same cell, and why."""
    margin = MARGIN.get(dtype, OTHER_MARGIN)
    for name in ("known", "coding"):
        mine, other = ours[name], base[name]
        allowed = margin * mine["asked"] + 1e-9
        if mine[WRONG] - other[WRONG] > allowed:
            return "worse", f"{name}: {mine[WRONG]} of {mine['asked']} wrong, {other[WRONG]} for the baseline"
        if other[RIGHT] - mine[RIGHT] > allowed:
            return "unknown", f"{name}: {mine[HARNESS]} failures of the harness, {other[HARNESS]} for the baseline"
    return "same", ""


def _known(server: Server, question: Question) -> Outcome:
    def ask() -> Answer:
        return server.generate(server.chat_ids(question.ask), max_new_tokens=question.max_tokens)

    return judged(question.ask, ask, lambda answer: judge_question(question, answer))


def _coded(server: Server, expected: Pair, task: Task) -> Outcome:
    def ask() -> Answer:
        return server.generate(server.chat_ids(task.ask), max_new_tokens=expected.coding.max_tokens)

    return judged(task.ask, ask, lambda answer: judge_task(task, answer))


def _accept_lengths(pool, server: Server, expected: Pair, prompts: list[tuple[str, str]]) -> dict[str, float]:
    """Completion tokens per verify step by category. Raises ProbeError where a server does not report them."""
    most = expected.acceptance["quick"].max_tokens
    answers = pool.map(lambda p: server.generate(server.chat_ids(p[1]), max_new_tokens=most), prompts)
    found: dict[str, list[acceptance.Acceptance]] = {}
    for (category, _), answer in zip(prompts, answers, strict=True):
        found.setdefault(category, []).append(acceptance.of_request(answer))
    return {category: round(acceptance.added(counts).accept_length, 4) for category, counts in found.items()}


def _tally(outcomes: Iterable[Outcome]) -> dict:
    found = list(outcomes)
    counts = Counter(outcome.verdict for outcome in found)
    failures = [vars(outcome) for outcome in found if outcome.verdict != RIGHT]
    return {"asked": len(found), **{name: counts[name] for name in (RIGHT, WRONG, HARNESS)}, "failures": failures}


def _blocks(text: str) -> list[str]:
    return re.findall(r"```[a-zA-Z0-9]*\n(.*?)(?:\n```|\Z)", text, re.DOTALL)


def _compiles(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True
