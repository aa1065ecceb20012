"""What is expected of one model pair: data in `pairs/<name>.yaml`, read and checked here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "pairs"


class PairError(ValueError):
    """One sentence that says which pair file or key is wrong."""


@dataclass(frozen=True)
class Question:
    """`answer` must occur in the reply as a word of its own, in any case."""

    ask: str
    answer: str

    def answered_by(self, text: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(self.answer)}(?!\w)", text, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Coherence:
    """A question with a long answer, and how repetitive that answer may be.

    max_run: longest allowed run of one token, in tokens.
    max_repeated_share: allowed share (0..1) of 4-grams that occurred before.
    """

    ask: str
    max_tokens: int
    max_run: int
    max_repeated_share: float


@dataclass(frozen=True)
class Window:
    """Validated mean accept length of one engine, both bounds included, in tokens per target step."""

    algorithm: str
    budget: int
    top_k: int | None
    low: float
    high: float


@dataclass(frozen=True)
class Pair:
    name: str
    eos_ids: tuple[int, ...]
    answer_tokens: int
    questions: tuple[Question, ...]
    max_differing_share: float
    coherence: Coherence
    acceptance_tokens: int
    acceptance_prompts: tuple[str, ...]
    windows: tuple[Window, ...]


def known() -> list[str]:
    """Names of the pairs that have expectations, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def resolve(asked: str | None, model_path: str) -> str:
    """The name of the pair: the asked one, else the longest known name in the served model's path.

    Raises PairError when there is none.
    """
    choices = ", ".join(known())
    if asked is not None:
        if asked not in known():
            raise PairError(f"--pair {asked} is unknown: use one of {choices}, or add pairs/{asked}.yaml")
        return asked
    matching = [name for name in known() if name in model_path]
    if not matching:
        raise PairError(f"no expectations match the model {model_path}: name the pair with --pair ({choices})")
    return max(matching, key=len)


def load(name: str) -> Pair:
    """Raises PairError when a key is missing or has a wrong value."""
    path = FOLDER / f"{name}.yaml"
    try:
        return _parse(name, yaml.safe_load(path.read_text(encoding="utf-8")))
    except KeyError as error:
        raise PairError(f"pairs/{path.name} lacks the key {error}") from None
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise PairError(f"pairs/{path.name} cannot be read: {error}") from None


def _parse(name: str, data: dict[str, Any]) -> Pair:
    answers, acceptance = data["known_answers"], data["acceptance"]
    return Pair(
        name=name,
        eos_ids=tuple(data["eos_token_ids"]),
        answer_tokens=answers["max_tokens"],
        questions=tuple(Question(q["ask"], str(q["answer"])) for q in answers["questions"]),
        max_differing_share=data["concurrency"]["max_differing_share"],
        coherence=Coherence(**data["coherence"]),
        acceptance_tokens=acceptance["max_tokens"],
        acceptance_prompts=tuple(acceptance["prompts"]),
        windows=tuple(Window(**window) for window in acceptance["windows"]),
    )
