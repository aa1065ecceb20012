"""Whether a written Python function does what its task asks."""

from __future__ import annotations

import json
import re

from . import sandbox
from .pair import Task


def solved(task: Task, answer: str) -> bool:
    """Whether the code in `answer` gives every call of the task its value.

    Raises NoSandboxError where generated code cannot be run safely.
    """
    calls = ", ".join(call for call, _ in task.calls)
    printed = sandbox.run(f"{code_in(answer)}\n\nimport json\nprint(json.dumps([{calls}]))\n")
    try:
        return json.loads(printed.splitlines()[-1]) == [value for _, value in task.calls]
    except (IndexError, ValueError):
        return False


def code_in(answer: str) -> str:
    """The first fenced block, which may be cut off at its end; the whole answer where there is none."""
    fenced = re.search(r"```[a-zA-Z0-9]*\n(.*?)(?:\n```|\Z)", answer, re.DOTALL)
    return fenced.group(1) if fenced else answer
