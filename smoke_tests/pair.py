"""What is expected of one model pair: data in `pairs/<name>.yaml`, read and checked here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "pairs"
#: Groups of questions; the last four are text to be copied.
GROUPS = ("known", "arithmetic", "identifiers", "numbers", "code", "scripts")


class PairError(ValueError):
    """One sentence that says which pair file or key is wrong."""


@dataclass(frozen=True)
class Question:
    """A question with one right answer.

    answer: must occur in the reply as a word of its own, in any case; or, when `verbatim`, character by character.
    text: the whole recorded reply at temperature 0, None where none is recorded.
    quick: whether each roll-out asks it, not only a thorough run.
    """

    ask: str
    answer: str
    max_tokens: int
    verbatim: bool = False
    text: str | None = None
    quick: bool = True

    def answered_by(self, text: str) -> bool:
        if self.verbatim:
            return self.answer in text
        return re.search(rf"(?<!\w){re.escape(self.answer)}(?!\w)", text, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Coherence:
    """One of the acceptance prompts, whose answer ends by itself, and the bounds of coherent text.

    max_run: longest allowed run of one token, in tokens.
    max_repeated_share: allowed share (0..1) of 4-grams that occurred before.
    script: Unicode's name of the script that the answer is written in, such as LATIN.
    max_foreign_share: allowed share (0..1) of letters of other scripts.
    min_entropy: least entropy of the answer's tokens, in bits per token.
    """

    ask: str
    max_run: int
    max_repeated_share: float
    script: str
    max_foreign_share: float
    min_entropy: float


@dataclass(frozen=True)
class Expected:
    """Recorded accept length of one engine in tokens per target step, by category."""

    algorithm: str
    budget: int
    top_k: int | None
    accept_lengths: dict[str, float]

    def is_chain_of(self, block_size: int | None) -> bool:
        """Whether this is the chain with the drafter's block of `block_size`: one candidate for each depth."""
        return self.top_k in (1, None) and block_size is not None and self.budget == block_size - 1


@dataclass(frozen=True)
class AcceptanceSet:
    """Prompts by category, and the accept lengths recorded for them.

    tolerance: how far, as a share, a category's accept length may lie from the recorded one, on either side.
    """

    temperature: float
    max_tokens: int
    tolerance: float
    prompts: dict[str, tuple[str, ...]]
    expected: tuple[Expected, ...]


@dataclass(frozen=True)
class Sampling:
    """A question at a temperature above 0.

    answer: a regular expression, in any case. least_right: how many of `samples` answers must match it.
    least_distinct: how many of them must differ.
    """

    ask: str
    answer: str
    temperature: float
    max_tokens: int
    samples: int
    least_distinct: int
    least_right: int


@dataclass(frozen=True)
class Task:
    """A Python function to be written. calls: (expression, its value) pairs that hold for a right one."""

    ask: str
    calls: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Coding:
    """least_right: how many of the tasks must be solved."""

    max_tokens: int
    least_right: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Needle:
    """max_prompt_tokens: the longest prompt out of which the model answers. depths: where the fact lies (0..1)."""

    max_prompt_tokens: int
    depths: tuple[float, ...]


@dataclass(frozen=True)
class Pair:
    """questions: by group, empty where nothing is claimed. Other claims are None where the pair makes none.

    long_prompt_tokens: a prompt whose prefill takes long, and that the served context and KV memory still hold.
    max_differing_share: dtype to the share (0..1) of answers at temperature 0 that near-ties may change; what is
        claimed holds in these dtypes only.
    dtype: what the server runs in, "auto" where it does not say; that has the largest share.
    claims_speed: whether speculation is said to be faster with this pair.
    """

    name: str
    eos_ids: tuple[int, ...]
    claims_speed: bool
    max_differing_share: dict[str, float]
    questions: dict[str, tuple[Question, ...]]
    long_prompt_tokens: int
    coherence: Coherence
    acceptance: dict[str, AcceptanceSet]
    sampling: Sampling | None
    coding: Coding | None
    needle: Needle | None
    tool_call: bool
    dtype: str = "auto"

    def served_in(self, dtype: str) -> Pair:
        """The same as served in a dtype. Raises PairError where nothing is known about the answers in it."""
        known = ", ".join(self.max_differing_share)
        if dtype != "auto" and dtype not in self.max_differing_share:
            raise PairError(
                f"the answers of {self.name} are known in {known} and the server runs in {dtype}: start it with "
                f"--dtype {known.partition(',')[0]}, or record them in {dtype} and name it in pairs/{self.name}.yaml"
            )
        return replace(self, dtype=dtype)

    def allowed_differing(self, answers: int) -> int:
        """How many of so many answers may differ at temperature 0."""
        shares = self.max_differing_share
        return math.floor(shares.get(self.dtype, max(shares.values())) * answers)


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
    except (AttributeError, TypeError, ValueError, yaml.YAMLError) as error:
        raise PairError(f"pairs/{path.name} cannot be read: {error}") from None


def _parse(name: str, data: dict[str, Any]) -> Pair:
    coherence = Coherence(**data["coherence"])
    acceptance = {key: _acceptance(data["acceptance"][key]) for key in ("quick", "full", "sampled")}
    for key in ("quick", "full"):
        if not any(coherence.ask in group for group in acceptance[key].prompts.values()):
            raise ValueError(f"coherence.ask must be one of acceptance.{key}.prompts")
    return Pair(
        name=name,
        eos_ids=tuple(data["eos_token_ids"]),
        claims_speed=data["claims_speed"],
        max_differing_share=_shares(data["max_differing_share"]),
        questions=_questions(data["questions"]),
        long_prompt_tokens=data["long_prompt_tokens"],
        coherence=coherence,
        acceptance=acceptance,
        sampling=Sampling(**data["sampling"]) if data.get("sampling") else None,
        coding=_coding(data["coding"]) if data.get("coding") else None,
        needle=_needle(data["needle"]) if data.get("needle") else None,
        tool_call=bool(data.get("tool_call")),
    )


def _questions(data: dict[str, Any]) -> dict[str, tuple[Question, ...]]:
    unknown = set(data) - {*GROUPS, "max_tokens", "copy_prompt"}
    if unknown:
        raise ValueError(f"questions: unknown group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    return {
        group: tuple(_question(entry, data["max_tokens"], data["copy_prompt"]) for entry in data.get(group) or [])
        for group in GROUPS
    }


def _question(entry: dict[str, Any], max_tokens: int, copy_prompt: str) -> Question:
    shared = {"max_tokens": max_tokens, "text": entry.get("text"), "quick": entry.get("quick", True)}
    if "copy" in entry:
        ask = entry.get("ask") or copy_prompt.format(entry["copy"])
        return Question(ask, str(entry["copy"]), verbatim=True, **shared)
    return Question(entry["ask"], str(entry["answer"]), **shared)


def _shares(data: dict[str, float]) -> dict[str, float]:
    if not data or not all(0 <= share <= 1 for share in data.values()):
        raise ValueError("max_differing_share: give each dtype a share from 0 to 1")
    return data


def _acceptance(data: dict[str, Any]) -> AcceptanceSet:
    prompts = {category: tuple(asked) for category, asked in data["prompts"].items()}
    return AcceptanceSet(
        temperature=data["temperature"],
        max_tokens=data["max_tokens"],
        tolerance=data["tolerance"],
        prompts=prompts,
        expected=tuple(_expected(row, prompts) for row in data["expected"]),
    )


def _expected(row: dict[str, Any], prompts: dict[str, Any]) -> Expected:
    lengths = {category: float(row[category]) for category in prompts}
    return Expected(row["algorithm"], row["budget"], row["top_k"], lengths)


def _coding(data: dict[str, Any]) -> Coding:
    tasks = tuple(Task(task["ask"], tuple((call, value) for call, value in task["calls"])) for task in data["tasks"])
    return Coding(data["max_tokens"], data["least_right"], tasks)


def _needle(data: dict[str, Any]) -> Needle:
    return Needle(data["max_prompt_tokens"], tuple(data["depths"]))
