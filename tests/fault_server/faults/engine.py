"""Faults of the scheduler and of what the server says about itself."""

from __future__ import annotations

import threading
import time
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ..behaviour import Good, Running, gathered
from ..engine import Completion, EngineError, Request
from ..recording import Trajectory

# Longer than any test waits, short enough that no thread is left for good.
HANG_S = 20
# Token limit of requests for long answers.
LONG = 60


class DeadScheduler(Good):
    """The scheduler is dead and every health check says 200."""

    def asked(self, request: Request) -> Request:
        time.sleep(HANG_S)
        return request

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path in ("/server_info", "/v1/loads"):
            time.sleep(HANG_S)
        return status, body


class DeadAfterFirstReply(Good):
    """The process stops answering after it has described itself once."""

    def __init__(self):
        self._described = False

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/model_info":
            if self._described:
                time.sleep(HANG_S)
            self._described = True
        return status, body


class DeadAfterBadRequest(Good):
    """A bad request ends the scheduler."""

    def __init__(self):
        self._dead = False

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        self._dead = self._dead or (status == 400 and "temperature" in body["message"])
        return status, body

    def asked(self, request: Request) -> Request:
        if self._dead:
            time.sleep(HANG_S)
        return request


class CachedAnswers(Good):
    """A cache in front of the model answers, the model is not asked."""

    def cut(self, request: Request, completion: Completion) -> Completion:
        return replace(completion, cached_tokens=completion.prompt_tokens)


class NoPrefixCache(Good):
    """The prefix cache is off."""

    def cut(self, request: Request, completion: Completion) -> Completion:
        return replace(completion, cached_tokens=0)


class DetokenizerAstray(Good):
    """The text is that of the tokens before."""

    def cut(self, request: Request, completion: Completion) -> Completion:
        return replace(completion, text=completion.text[:-1] + "~") if request.ignore_eos else completion


class TokensMiscounted(Good):
    """The native interface reports a token less than it generates."""

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/generate" and status == 200 and body["meta_info"]["finish_reason"]["type"] == "length":
            body["meta_info"]["completion_tokens"] -= 1
        return status, body


class PromptCutShort(Good):
    """A prompt that fills the context loses its beginning."""

    def cut(self, request: Request, completion: Completion) -> Completion:
        return replace(completion, prompt_tokens=min(completion.prompt_tokens, 4000))


class AbortedRunOn(Good):
    """The first request whose client leaves runs on for ever."""

    def __init__(self):
        self._lost = False

    def aborted(self) -> bool:
        first, self._lost = not self._lost, True
        return first


class AbortedKeepTokens(Good):
    """The KV tokens of a request whose client left are never given back."""

    leaks_tokens = True


class LeftoversOfAborted(Good):
    """Once a client has left, answers hold what was meant for it."""

    def __init__(self):
        self._left = False

    def aborted(self) -> bool:
        self._left = True
        return False

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if not self._left or request.ignore_eos:
            return trajectory
        first, *rest = trajectory.pieces
        return trajectory.saying([f"{first} and", *rest])


class OutOfMemoryUnderLoad(Good):
    """Long answers for all places of the batch at once do not fit into the memory."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if request.limit >= LONG and not request.ignore_eos and gathered(running, 4):
            raise EngineError("Decode out of memory. Try to lower your batch size.")
        return trajectory


class BreaksAtNul(Good):
    """A message with a NUL character breaks the engine."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if "\0" in request.prompt:
            raise EngineError("embedded null character")
        return trajectory


class SlowTogether(Good):
    """The verify pass is slow as soon as the batch is full."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if request.limit >= LONG and not request.ignore_eos and gathered(running, 3):
            time.sleep(2)
        return trajectory


class DeafDuringPrefill(Good):
    """The web server does not answer while the first long prompt is computed."""

    def __init__(self):
        self._first = True
        self._idle = threading.Event()
        self._idle.set()

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if self._first and len(request.prompt_ids) > 1500:
            self._first = False
            self._idle.clear()
            time.sleep(5)
            self._idle.set()
        return trajectory

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/model_info":
            self._idle.wait()
        return status, body


class NormalizingTokenizer(Good):
    """The tokenizer puts letters and their accents together."""

    def tokenized(self, text: str) -> str:
        return text.replace("e\u0301", "\u00e9")


class _Described(Good):
    changes: dict[str, Any] = {}
    state: dict[str, Any] = {}

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/server_info":
            body = deepcopy(body) | self.changes
            body["internal_states"][0] |= self.state
        return status, body


class RunsWithoutSpeculation(_Described):
    """The server runs AR although a tree was meant."""

    changes = {"speculative_algorithm": None}


class UnrecordedBudget(_Described):
    """The tree has a budget that nobody validated."""

    changes = {"speculative_num_draft_tokens": 13}


class OtherModelPath(Good):
    """The instance at this address serves another model."""

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        return status, body | {"model_path": "/models/another/target"} if path == "/model_info" else body
