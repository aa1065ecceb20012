"""What a good server said: its own description, its metrics, and every answer step by step."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "recording.json"
END = "<|im_end|>"
# The random numbers of the smoke tests' prompts: an answer is recorded once for all of them.
_NONCE = re.compile(r"(?<=Request )[0-9a-f]{8,}(?=\.)|(?<=of the vault is )\d{4}(?=\.)|\b\d{19}\b")
LONGEST_KEY = 300


class MissingError(LookupError):
    """Nothing suitable is recorded for a request."""


@dataclass(frozen=True)
class Trajectory:
    """One answer as the engine made it.

    steps: pieces of text that each step committed, one for each token; the first entry is the prefill's one
    token. An answer that ended by itself has the end token's text as its last piece.
    surplus: drafted tokens that the last step accepted beyond the end of the answer.
    nonce: the random number of the prompt that it answered.
    """

    steps: tuple[tuple[str, ...], ...]
    surplus: int
    nonce: str = ""

    @property
    def pieces(self) -> list[str]:
        return list(itertools.chain.from_iterable(self.steps))

    @property
    def drafts(self) -> tuple[int, ...]:
        """Drafted tokens that each verify step accepted: all that it committed but the bonus token."""
        accepted = [len(step) - 1 for step in self.steps[1:]]
        return (*accepted[:-1], accepted[-1] + self.surplus) if accepted else ()

    @property
    def ended(self) -> bool:
        return self.steps[-1][-1] == END

    @classmethod
    def of_text(cls, text: str) -> Trajectory:
        """An answer of one token a character and step, the end token included."""
        return cls(tuple((piece,) for piece in [*text, END]), surplus=0)

    def lasting(self, tokens: int) -> Trajectory:
        """At least `tokens` tokens: the same steps over and over, the prefill's token in the first of them."""
        again = (self.steps[0] + self.steps[1], *self.steps[2:]) if len(self.steps) > 1 else self.steps
        return replace(self, steps=self.steps + again * (tokens // len(self.pieces)))

    def saying(self, pieces: list[str]) -> Trajectory:
        """The same steps with other words: one piece for each token."""
        rest = iter(pieces)
        return replace(self, steps=tuple(tuple(next(rest) for _ in step) for step in self.steps))

    def for_nonce(self, nonce: str) -> Trajectory:
        """The answer to the same prompt with another number, whose characters are tokens of their own."""
        pieces, width = self.pieces, len(self.nonce)
        for begin in range(len(pieces) - width + 1):
            if width and pieces[begin : begin + width] == list(self.nonce):
                pieces[begin : begin + width] = nonce
        return replace(self.saying(pieces), nonce=nonce)


class Recording:
    """Answers by prompt and sampling settings, with the replies of the endpoints that describe the server.

    replies: decoded JSON by path. metrics: the text of `/metrics` when recording began.
    """

    def __init__(self, replies: dict[str, Any], metrics: str):
        self.replies = replies
        self.metrics = metrics
        self._answers: dict[str, list[Trajectory]] = {}
        self._turns: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, key: str, answer: Trajectory, sampled: bool) -> None:
        """Keep an answer: a sampled one beside the others, else instead of a shorter one."""
        with self._lock:
            self._answers[key] = [*self._answers.get(key, ()), answer] if sampled else [answer]

    def answer(self, key: str, tokens: int, ignore_eos: bool) -> Trajectory:
        """A recorded answer with at least `tokens` tokens or an end of its own; several take turns.

        Raises MissingError when nothing recorded is long enough.
        """
        with self._lock:
            found = self._answers.get(key, [])
            fitting = [a for a in found if len(a.pieces) >= tokens or (a.ended and not ignore_eos)]
            if not fitting:
                raise MissingError(
                    f"run tests.fault_server.record: no answer of {tokens} tokens is recorded for {key!r}"
                )
            turn = self._turns[key] = self._turns.get(key, -1) + 1
        return fitting[turn % len(fitting)]

    def count(self, key: str) -> int:
        """How many answers are kept under a name."""
        return len(self._answers.get(key, ()))

    def save(self, path: Path = PATH) -> None:
        answers = {key: list(map(vars, found)) for key, found in sorted(self._answers.items())}
        document = {"replies": self.replies, "metrics": self.metrics.splitlines(), "answers": answers}
        path.write_text(_lines(document), encoding="utf-8")

    @classmethod
    def load(cls, path: Path = PATH) -> Recording:
        document = json.loads(path.read_text(encoding="utf-8"))
        recording = cls(document["replies"], "\n".join(document["metrics"]) + "\n")
        for key, answers in document["answers"].items():
            for a in answers:
                steps = tuple(map(tuple, a["steps"]))
                recording.add(key, Trajectory(steps, a["surplus"], a["nonce"]), sampled=True)
        return recording


def nonce_of(prompt: str) -> str:
    """The random number in a prompt, empty when there is none."""
    found = _NONCE.search(prompt)
    return found.group() if found else ""


def key_of(prompt: str, settings: dict[str, Any]) -> str:
    """The name under which an answer is kept: the prompt with its random numbers blanked, and the settings.

    A long prompt is named by its beginning and its digest.
    """
    blanked = _NONCE.sub("<nonce>", prompt)
    if len(blanked) > LONGEST_KEY:
        blanked = f"{blanked[:100]}... sha256 {hashlib.sha256(blanked.encode()).hexdigest()}"
    return " ".join([blanked, *(f"{name}={value}" for name, value in settings.items())])


def _lines(document: dict[str, Any]) -> str:
    """JSON with one line for each reply, series and answer, so that a change is a readable diff."""
    sections = []
    for name, section in document.items():
        named = isinstance(section, dict)
        lines = [f"{_json(k)}: {_json(v)}" for k, v in section.items()] if named else map(_json, section)
        begin, end = "{}" if named else "[]"
        sections.append(f"{_json(name)}: {begin}\n" + ",\n".join(lines) + f"\n{end}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
