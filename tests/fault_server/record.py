"""Records a good server: serves a run of the smoke tests, asking the real server for what is not yet known.

    python -m tests.fault_server.record --base-url http://127.0.0.1:30000 [--keep] [pytest options]

The smoke tests run against the fault server, so a recording that passes is one that replays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import requests

from .behaviour import Good
from .engine import Engine, Request
from .recording import MissingError, Recording, Trajectory, nonce_of
from .server import FaultServer
from .text import messages_of

PATHS = ("/model_info", "/v1/models", "/server_info", "/v1/loads")
# Answers that are asked for with several limits are fetched once.
LEAST_TOKENS = 16
# What is no conversation only fills the context: nobody reads the answer, and a long prefill takes minutes.
FILLER_TOKENS = 200
ATTEMPTS = 5


class Upstream:
    """The real server. Every method raises requests.RequestException when it gives no answer."""

    def __init__(self, base_url: str):
        self._base_url = base_url.rstrip("/")
        self._pieces: dict[int, str] = {}

    def describe(self) -> Recording:
        """An empty recording with the server's description of itself."""
        # A counter has no series before it counts, a gauge none before some dozen steps.
        sampling = {"temperature": 0, "max_new_tokens": 256, "ignore_eos": True}
        self._post("/generate", {"text": "One, two, three", "sampling_params": sampling})
        replies = {path: self._get(path).json() for path in PATHS}
        state = replies["/server_info"]["internal_states"][0]
        outer = replies["/server_info"]
        own = {name: value for name, value in state.items() if name not in outer and not name.startswith("_")}
        outer["internal_states"] = [own]
        lines = [line for line in self._get("/metrics").text.splitlines() if "_bucket{" not in line]
        return Recording(replies, "\n".join(lines) + "\n")

    def trajectory(self, request: Request) -> Trajectory:
        """The answer of the real server, step by step."""
        for _ in range(ATTEMPTS):
            found = self._steps(self._events(request))
            if found is not None:
                return replace(found, nonce=nonce_of(request.prompt))
        raise RuntimeError(f"events that hold several steps, {ATTEMPTS} times over: record on an idle machine")

    def _steps(self, events: list[dict[str, Any]]) -> Trajectory | None:
        """None when an event holds more than one step: then the machine was too busy to send them apart."""
        meta = events[-1]["meta_info"]
        bounds = [0, *(len(event["output_ids"]) for event in events)]
        pieces = self._split(events[-1]["output_ids"])
        spans = zip(bounds, bounds[1:], strict=False)
        steps = tuple(tuple(pieces[begin:end]) for begin, end in spans if end > begin)
        if len(steps) - 1 != meta.get("spec_verify_ct", 0):
            return None
        seen = sum(len(step) - 1 for step in steps[1:])
        return Trajectory(steps, surplus=meta.get("spec_num_correct_drafts", 0) - seen)

    def _split(self, ids: list[int]) -> list[str]:
        """The piece of text that each token adds; a character in several tokens belongs to the last of them."""
        pieces: list[str] = []
        pending: list[int] = []
        for token in ids:
            pending.append(token)
            text = self._text(pending)
            whole = not text.endswith("\ufffd")
            pieces.append(text if whole else "")
            pending = [] if whole else pending
        return pieces

    def _text(self, ids: list[int]) -> str:
        if len(ids) > 1 or ids[0] not in self._pieces:
            text = self._post("/detokenize", {"tokens": ids, "skip_special_tokens": False}).json()["text"]
            if len(ids) > 1:
                return text
            self._pieces[ids[0]] = text
        return self._pieces[ids[0]]

    def _events(self, request: Request) -> list[dict[str, Any]]:
        limit = max(request.limit, LEAST_TOKENS)
        sampling: dict[str, Any] = {"temperature": request.temperature, "max_new_tokens": limit}
        sampling |= {"ignore_eos": True} if request.ignore_eos else {}
        reply = self._post(
            "/generate", {"input_ids": self._prompt(request), "sampling_params": sampling, "stream": True}
        )
        lines = (line.removeprefix(b"data: ") for line in reply.iter_lines() if line.startswith(b"data: {"))
        return [json.loads(line) for line in lines]

    def _prompt(self, request: Request) -> list[int]:
        messages = messages_of(request.prompt)
        body = {"prompt": request.prompt} if messages is None else {"messages": messages}
        ids = self._post("/tokenize", body).json()["tokens"]
        return ids if messages else ids[:FILLER_TOKENS]

    def _get(self, path: str) -> requests.Response:
        return _checked(requests.get(self._base_url + path, timeout=60))

    def _post(self, path: str, body: dict[str, Any]) -> requests.Response:
        return _checked(requests.post(self._base_url + path, json=body, timeout=600))


def _checked(reply: requests.Response) -> requests.Response:
    reply.raise_for_status()
    return reply


class Recorder:
    """Finds the trajectory of a request: a recorded one, else by asking the real server, one request at a time."""

    def __init__(self, upstream: Upstream, recording: Recording):
        self._upstream = upstream
        self._recording = recording
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Trajectory:
        with self._lock:
            sampled = request.temperature > 0
            # Each time a sampled answer is asked for, another is recorded.
            if not sampled or self._asked[request.key] < self._recording.count(request.key):
                with contextlib.suppress(MissingError):
                    self._asked[request.key] += 1
                    return self._recording.answer(request.key, request.limit, request.ignore_eos)
            found = self._upstream.trajectory(request)
            self._recording.add(request.key, found, sampled)
            # A run that is broken off goes on with --keep.
            self._recording.save()
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Record the answers of a good server to the smoke tests.")
    parser.add_argument("--base-url", required=True, help="the server")
    parser.add_argument("--keep", action="store_true", help="ask only for what the present recording lacks")
    options, rest = parser.parse_known_args()
    upstream = Upstream(options.base_url)
    try:
        recording = Recording.load() if options.keep else upstream.describe()
    except requests.RequestException as error:
        parser.exit(2, f"--base-url {options.base_url}: no SGLang server answers there ({error})\n")
    with FaultServer(Engine(recording, Recorder(upstream, recording)), Good()).serving() as server:
        codes = [pytest.main(["smoke_tests", "--base-url", server.url, "--class", c, *rest]) for c in ("quick", "full")]
    recording.save()
    return int(max(codes))


if __name__ == "__main__":
    sys.exit(main())
