"""Small functions that the model writes work when they are run."""

import pytest

from . import grading, sandbox
from .verdict import excerpt, expect


@pytest.mark.full
def test_coding(server, expected, evidence):
    wanted = expected.coding
    if wanted is None:
        pytest.skip(f"the pair {expected.name} claims no coding")
    try:
        sandbox.interpreter()
    except sandbox.NoSandboxError as error:
        pytest.skip(f"not run: {error}")
    answers = {task: server.chat(task.ask, max_tokens=wanted.max_tokens).text for task in wanted.tasks}
    unsolved = [task for task, answer in answers.items() if not grading.solved(task, answer)]
    solved = len(answers) - len(unsolved)
    evidence.say(f"{solved} of {len(answers)} functions right, {wanted.least_right} needed", solved=solved)
    if solved < wanted.least_right:
        expect(
            False,
            f"{wanted.least_right} of {len(answers)} functions right",
            f"{solved}; to {unsolved[0].ask!r} came {excerpt(answers[unsolved[0]])}",
            "single wrong tokens, which a program does not forgive",
        )
