"""How a good server behaves; each fault overrides a little of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from .engine import Completion, Request
from .recording import Trajectory

Json = dict[str, Any]
Running = Callable[[], int]
# How long requests that have company wait for more of it: a replay is over before the next request is there.
GATHER_S = 1


def gathered(running: Running, count: int) -> bool:
    """Whether `count` requests share the batch, once those have come that were sent together."""
    deadline = time.monotonic() + GATHER_S
    while 1 < running() < count and time.monotonic() < deadline:
        time.sleep(0.002)
    return running() >= count


class Good:
    """A server without fault."""

    # Whether the KV tokens of a request whose client leaves are lost.
    leaks_tokens = False
    # An answer that follows the schema that the smoke tests prescribe.
    person = '{"name": "Anna", "age": 30}'

    def aborted(self) -> bool:
        """A client left before its answer ended. Returns whether the place in the batch is lost with it."""
        return False

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        """What the model says; `running` tells how many requests share the batch."""
        return trajectory

    def asked(self, request: Request) -> Request:
        """The request by which the answer is cut."""
        return request

    def cut(self, request: Request, completion: Completion) -> Completion:
        """The answer after it was cut, before it is counted."""
        return completion

    def structured(self, body: Json) -> str | None:
        """The answer to a request that prescribes its form, None to let the model answer as it likes."""
        return self.person if body.get("response_format") else None

    def streamed(self, events: Iterator[Json]) -> Iterator[Json]:
        """The events of a streamed answer."""
        return events

    def counted(self, completion: Completion) -> Completion:
        """The answer as the metrics count it."""
        return completion

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        """Status and body of any reply before it leaves; text is sent as it is."""
        return status, body

    def tokenized(self, text: str) -> str:
        """The text that the tokenizer sees."""
        return text

    def lets_in(self, key: str, given: str | None) -> bool:
        """Whether a request that gives a key may enter a server that was started with one."""
        return given == key


class Structured(Good):
    """A server without fault that also serves tool calls, which the recorded one does not."""

    call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}

    def structured(self, body: Json) -> str | None:
        return self.call["arguments"] if body.get("tools") else super().structured(body)

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/v1/chat/completions" and status == 200:
            message = body["choices"][0]["message"]
            if message["content"] == self.call["arguments"]:
                self.parse(message)
        return status, body

    def parse(self, message: Json) -> None:
        """Turn the text of a tool call into the call."""
        message |= {"content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": self.call}]}


class Shared(Good):
    """A server without fault that other clients keep busy."""

    def __init__(self):
        self._scrapes = 0

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/v1/loads" and status == 200:
            replica = body["loads"][0]
            body["loads"] = [replica | {"num_running_reqs": replica["num_running_reqs"] + 1}]
        if path == "/metrics" and status == 200:
            self._scrapes += 1
            body += f'sglang:realtime_tokens_total{{mode="prefill_compute",model_name="others"}} {self._scrapes}\n'
        return status, body
