"""A wrong answer is told from a failure of the harness, and a cell that answers worse is no candidate."""

import pytest

from bench import quality
from smoke_tests import sandbox
from smoke_tests.client import Answer
from smoke_tests.pair import Question, Task
from smoke_tests.verdict import NoAnswerError

PARIS = Question("Capital of France?", "Paris", max_tokens=20)
ADD = Task("Write add(a, b).", (("add(2, 3)", 5), ("add(-1, 1)", 0)))
GOOD = "def add(a, b):\n    return a + b"


def answer(text, finish="stop", ids=()):
    return Answer(text, finish, None, 10, len(ids) or len(text.split()), tuple(ids))


@pytest.fixture
def sandboxed():
    try:
        sandbox.interpreter()
    except sandbox.NoSandboxError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (answer("It is Paris."), "right"),
        (answer("It is Lyon."), "wrong"),
        (answer("To find the capital of France one should look at a map of", "length", range(13)), "harness"),
        # It repeats itself: no limit of tokens would have helped.
        (answer("of of of of of of of of of", "length", [5] * 12), "wrong"),
        (answer("It is Paris. Paris is", "length", range(6)), "right"),
    ],
)
def test_known_answers(given, verdict):
    assert quality.judge_question(PARIS, given)[0] == verdict


@pytest.mark.parametrize(
    ("text", "finish", "verdict"),
    [
        (f"```python\n{GOOD}\n```", "stop", "right"),
        (GOOD, "stop", "right"),
        ("```python\ndef add(a, b):\n    return a - b\n```", "stop", "wrong"),
        ("```python\ndef add(a, b):\n    return (a +", "length", "harness"),
        (f"```\nadd(2, 3) -> 5\n```\nSo:\n```python\n{GOOD}\n```", "stop", "harness"),
        ("I cannot write code.", "stop", "wrong"),
        # The code is whole and wrong; only the talk behind it is cut short.
        ("```python\ndef add(a, b):\n    return a - b\n```\nThis adds the two", "length", "wrong"),
    ],
)
def test_coding(sandboxed, text, finish, verdict):
    assert quality.judge_task(ADD, answer(text, finish))[0] == verdict


def test_no_answer_and_no_sandbox_are_the_harness():
    def fail(error):
        raise error

    for error in (NoAnswerError("nothing came"), sandbox.NoSandboxError("not root")):
        found = quality.judged("ask", lambda error=error: fail(error), lambda _: ("right", ""))
        assert (found.verdict, found.why) == ("harness", str(error))


def counts(right=10, wrong=0, harness=0):
    return {"asked": right + wrong + harness, "right": right, "wrong": wrong, "harness": harness, "failures": []}


def both(**known):
    return {"known": counts(**known), "coding": counts(right=3)}


@pytest.mark.parametrize(
    ("mine", "base", "dtype", "verdict"),
    [
        (both(), both(), "float32", "same"),
        (both(right=9, wrong=1), both(), "float32", "worse"),
        (both(right=9, harness=1), both(), "float32", "unknown"),
        (both(right=9, wrong=1), both(right=9, wrong=1), "float32", "same"),
        (both(right=10), both(right=9, wrong=1), "float32", "same"),
        # Near-ties of bfloat16 may cost one of ten, not two.
        (both(right=9, wrong=1), both(), "bfloat16", "same"),
        (both(right=8, wrong=2), both(), "bfloat16", "worse"),
    ],
)
def test_quality_beside_the_baseline(mine, base, dtype, verdict):
    assert quality.verdict(mine, base, dtype)[0] == verdict


def test_worse_code_is_worse_however_right_the_facts_are():
    mine = both() | {"coding": counts(right=1, wrong=2)}
    assert quality.verdict(mine, both(), "float32") == ("worse", "coding: 2 of 3 wrong, 0 for the baseline")
