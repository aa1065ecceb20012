"""Arms of one pair on one machine, recorded by this suite: without speculation (ar), chain and tree."""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from .company import company
from .speculation import Run
from .target import Target
from .verdict import ProbeError

SCHEMA = 1
# The speed is the median of so many rounds, of fewer where they take longer than this together.
ROUNDS, ENOUGH_S = 3, 60


@dataclass(frozen=True)
class Arm:
    """One server as it was measured.

    budget: tree nodes without the root, None for ar. concurrency: requests at once while the speed was measured.
    tokens_per_second: all requests together. answers: prompt -> token ids at temperature 0, one at a time.
    """

    kind: str
    pair: str
    version: str
    budget: int | None
    concurrency: int
    tokens_per_second: float
    answers: dict[str, list[int]]


def measure(target: Target, answered: Run) -> Arm:
    """The arm of a running server; `answered` holds its answers to the prompts of the acceptance set."""
    return Arm(
        kind=target.facts.kind,
        pair=target.pair.name,
        version=target.facts.version,
        budget=target.facts.budget,
        concurrency=target.concurrency,
        tokens_per_second=round(_speed(target, [one.prompt for one in answered.asked]), 3),
        answers={one.prompt: list(one.answer.output_ids) for one in answered.asked},
    )


def _speed(target: Target, prompts: list[str]) -> float:
    """Output tokens per second at the served concurrency."""
    prompt_ids = [target.server.chat_ids(p) for p in company(prompts, max(2 * target.concurrency, len(prompts)))]
    limit = target.acceptance.max_tokens
    speeds, began = [], time.monotonic()
    with ThreadPoolExecutor(target.concurrency) as pool:
        while len(speeds) < ROUNDS and (not speeds or time.monotonic() - began < ENOUGH_S):
            at = time.monotonic()
            answers = list(pool.map(lambda ids: target.server.generate(ids, max_new_tokens=limit), prompt_ids))
            speeds.append(sum(answer.completion_tokens for answer in answers) / (time.monotonic() - at))
    return statistics.median(speeds)


def load(path: Path) -> dict[str, Arm]:
    """Arms by kind. Raises ProbeError for a file that this suite did not write."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, not {SCHEMA}")
        return {kind: Arm(**arm) for kind, arm in data["arms"].items()}
    except OSError as error:
        raise ProbeError(
            f"--baseline {path} cannot be read: {error.strerror}: record it with --record-baseline"
        ) from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ProbeError(f"{path} is no baseline of this suite ({error}): record it anew") from None


def add(path: Path, arm: Arm) -> None:
    """Put an arm into the file, in place of one of the same kind. Raises ProbeError for a file of another form."""
    arms = load(path) if path.exists() else {}
    arms[arm.kind] = arm
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema": SCHEMA, "arms": {kind: asdict(one) for kind, one in sorted(arms.items())}}
    path.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")
