"""Turns a recorded answer into the reply to one request, and counts as SGLang's scheduler does."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .metrics import Metrics
from .recording import Recording, Trajectory, key_of, nonce_of
from .text import EOS, Tokenizer

if TYPE_CHECKING:
    from .behaviour import Good

# One decode step: short for the tests' sake, long enough that requests sent at once overlap.
STEP_S = 0.0005
ENDLESS_TOKENS = 32


class EngineError(RuntimeError):
    """The engine fails at a request, which is answered with status 500."""


@dataclass(frozen=True)
class Request:
    """One request for a completion, the same for both interfaces.

    limit: most tokens of the answer.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    limit: int
    temperature: float = 0.0
    ignore_eos: bool = False
    stops: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its answer in the recording."""
        settings = {"temperature": self.temperature, "ignore_eos": self.ignore_eos}
        return key_of(self.prompt, {name: value for name, value in settings.items() if value})


@dataclass(frozen=True)
class Completion:
    """A finished answer.

    steps: token ids by step, the prefill's one token first. drafts: drafted tokens that each verify step
    accepted, also beyond the end of the answer. text: the answer without end token and stop string.
    """

    steps: tuple[tuple[int, ...], ...]
    drafts: tuple[int, ...]
    text: str
    finish: str
    matched: int | str | None
    prompt_tokens: int
    cached_tokens: int

    @property
    def ids(self) -> list[int]:
        return list(itertools.chain.from_iterable(self.steps))

    @property
    def histogram(self) -> list[int]:
        """Entry i: steps that accepted exactly i drafts."""
        counts = Counter(self.drafts)
        return [counts[i] for i in range(max(counts, default=-1) + 1)]


@dataclass
class Slot:
    """A place in the running batch, and what of it is not given back at the end."""

    keeps_place: bool = False
    keeps_tokens: bool = False


class Engine:
    """The scheduler's part: slots, prefix cache, answers, counters.

    find: returns the trajectory of a request, by default the recorded one.
    """

    def __init__(self, recording: Recording, find: Callable[[Request], Trajectory] | None = None):
        self.recording = recording
        self.info = recording.replies["/server_info"]
        self.context_length: int = self.info["context_length"]
        self.tokenizer = Tokenizer()
        self.metrics = Metrics(recording.metrics)
        self._find = find or (lambda request: recording.answer(request.key, request.limit, request.ignore_eos))
        self.running = self.waiting = self.used_tokens = 0
        self._slots = threading.Semaphore(self.info["max_running_requests"])
        self._cached: list[tuple[int, ...]] = []
        self._lock = threading.Lock()

    @contextmanager
    def slot(self, tokens: int) -> Iterator[Slot]:
        """A place in the running batch for a prompt of `tokens` tokens, as soon as one is free."""
        self._count(waiting=+1)
        self._slots.acquire()
        self._count(waiting=-1, running=+1, used_tokens=tokens)
        slot = Slot()
        try:
            yield slot
        finally:
            self._count(running=slot.keeps_place - 1, used_tokens=0 if slot.keeps_tokens else -tokens)
            if not slot.keeps_place:
                self._slots.release()

    def answer(self, request: Request, behaviour: Good, said: str | None = None) -> Completion:
        """The finished answer, at once; `said` is what a grammar prescribes, whatever the model would say.

        Raises MissingError when nothing is recorded for the request.
        """
        if said is None:
            trajectory = behaviour.says(request, self._recorded(request), lambda: self.running)
        else:
            trajectory = Trajectory.of_text(said)
        cached = self._prefill(request.prompt_ids)
        return behaviour.cut(request, complete(self.tokenizer, behaviour.asked(request), trajectory, cached))

    def enter(self, completion: Completion) -> None:
        """Count a finished answer in the metrics."""
        tokens = len(completion.ids)
        self.metrics.finished(completion.prompt_tokens, completion.cached_tokens, tokens, completion.drafts)

    def loads(self) -> dict[str, Any]:
        """The reply of /v1/loads."""
        recorded = self.recording.replies["/v1/loads"]
        now = {"num_running_reqs": self.running, "num_waiting_reqs": self.waiting, "num_used_tokens": self.used_tokens}
        return recorded | {"loads": [recorded["loads"][0] | now]}

    def _recorded(self, request: Request) -> Trajectory:
        if request.ignore_eos:
            # Nobody reads an endless answer to its end: it begins again.
            begun = self._find(replace(request, limit=min(request.limit, ENDLESS_TOKENS)))
            return begun.for_nonce(nonce_of(request.prompt)).lasting(request.limit)
        return self._find(request).for_nonce(nonce_of(request.prompt))

    def _prefill(self, ids: tuple[int, ...]) -> int:
        """How many tokens of a prompt are in the prefix cache: all but the last at most. Puts it there."""
        hits = (sum(1 for _ in itertools.takewhile(_equal, zip(ids, seen, strict=False))) for seen in self._cached)
        cached = min(max(hits, default=0), len(ids) - 1)
        self._cached.append(ids)
        return cached

    def _count(self, running: int = 0, waiting: int = 0, used_tokens: int = 0) -> None:
        with self._lock:
            self.running += running
            self.waiting += waiting
            self.used_tokens += used_tokens
        self.metrics.batch(running, waiting)


def complete(tokenizer: Tokenizer, request: Request, trajectory: Trajectory, cached: int) -> Completion:
    """Cut a trajectory where the request ends: at the end token, a stop string or the token limit."""
    steps: list[tuple[int, ...]] = []
    ids: list[int] = []
    finish, matched = "", None
    for pieces in trajectory.steps:
        begin = len(ids)
        for piece in pieces:
            ids.append(tokenizer.id_of(piece))
            finish, matched = _ending(tokenizer, request, ids)
            if finish:
                break
        steps.append(tuple(ids[begin:]))
        if finish:
            break
    text = tokenizer.text(ids)
    if isinstance(matched, str):
        text = text[: text.index(matched)]
    drafts = trajectory.drafts[: len(steps) - 1]
    return Completion(tuple(steps), drafts, text, finish or "length", matched, len(request.prompt_ids), cached)


def _ending(tokenizer: Tokenizer, request: Request, ids: list[int]) -> tuple[str, int | str | None]:
    if ids[-1] == EOS and not request.ignore_eos:
        return "stop", EOS
    if request.stops:
        text = tokenizer.text(ids)
        for stop in request.stops:
            if stop in text:
                return "stop", stop
    return ("length", None) if len(ids) >= request.limit else ("", None)


def _equal(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


def pause() -> None:
    """The time that a decode step takes."""
    time.sleep(STEP_S)
