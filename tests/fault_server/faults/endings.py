"""Faults in where an answer ends, and in how its pieces reach the client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..behaviour import Good, Json, Running
from ..engine import Completion, Request
from ..recording import Trajectory


class NeverStops(Good):
    """The end token is no end."""

    def asked(self, request: Request) -> Request:
        return replace(request, ignore_eos=True)

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return trajectory.lasting(request.limit)


class OneTokenTooMany(Good):
    """A short token limit is exceeded by one."""

    def asked(self, request: Request) -> Request:
        return replace(request, limit=request.limit + 1) if request.limit < 16 else request


class TokenLimitIgnored(Good):
    """A short token limit is ignored."""

    def asked(self, request: Request) -> Request:
        return replace(request, limit=max(request.limit, 16))


class CutAnswerCalledStop(Good):
    """An answer that the token limit cut is said to have stopped by itself."""

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/v1/chat/completions" and status == 200 and body["choices"][0]["finish_reason"] == "length":
            body["choices"][0]["finish_reason"] = "stop"
        return status, body

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        for event in events:
            for choice in event.get("choices", ()):
                choice["finish_reason"] = choice["finish_reason"] and "stop"
            yield event


class StopStringKept(Good):
    """The stop string is part of the answer."""

    def cut(self, request: Request, completion: Completion) -> Completion:
        matched = completion.matched
        return replace(completion, text=completion.text + matched) if isinstance(matched, str) else completion


class StopStringMissed(Good):
    """A stop string is not searched."""

    def asked(self, request: Request) -> Request:
        return replace(request, stops=())


class StreamDropsTokens(Good):
    """Of a step that commits several tokens, only the first reaches a streaming client."""

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        for event in events:
            for choice in event.get("choices", ()):
                text = choice["delta"].get("content") or ""
                choice["delta"]["content"] = text[:1] + text[1:].split(" ")[0]
            yield event


class NativeStreamDropsTokens(Good):
    """The last event of a native stream lacks the tokens of its own step."""

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        for event in events:
            if "output_ids" in event and event["meta_info"]["finish_reason"]:
                event["output_ids"] = event["output_ids"][:-1]
            yield event


class StreamCutOff(Good):
    """A stream ends in the middle, without a reason."""

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        for event in events:
            if any(choice["finish_reason"] for choice in event.get("choices", ())) or event.get("usage"):
                return
            yield event


class StreamInOnePiece(Good):
    """A proxy holds the stream back and sends its text in one piece."""

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        held = ""
        for event in events:
            delta = event["choices"][0]["delta"] if event.get("choices") else {}
            held += delta.get("content") or ""
            if delta.get("content"):
                continue
            if event.get("choices") and event["choices"][0]["finish_reason"]:
                delta["content"] = held
            yield event


class StreamCutsCharacters(Good):
    """A stream sends the bytes of a character apart."""

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        for event in events:
            for choice in event.get("choices", ()):
                text = choice["delta"].get("content") or ""
                choice["delta"]["content"] = "".join("\ufffd\ufffd" if ord(c) > 0xFFFF else c for c in text)
            yield event
