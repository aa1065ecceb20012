"""The few requests that the probes make, and the replies as plain data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests

from .verdict import NoAnswerError, ProbeError, excerpt

CONNECT_TIMEOUT_S = 10
# Long enough for a busy two-core machine; only a server that hangs ever reaches it.
ANSWER_TIMEOUT_S = 600


@dataclass(frozen=True)
class Answer:
    """One finished completion.

    output_ids: the generated token ids, the matched end token included; empty over the OpenAI interface.
    finish: "stop" or "length". matched: the token id or the string that stopped it, else None.
    meta: the native interface's `meta_info`, empty over the OpenAI interface.
    """

    text: str
    finish: str
    matched: int | str | None
    prompt_tokens: int
    completion_tokens: int
    output_ids: tuple[int, ...] = ()
    meta: dict[str, Any] | None = None


@dataclass(frozen=True)
class Streamed:
    """A streamed completion put together again; `pieces` counts the events that carried text."""

    answer: Answer
    pieces: int


class Server:
    """An SGLang server at a base URL.

    Every method raises ProbeError for a reply that is no success, and NoAnswerError when nothing comes back.
    """

    def __init__(self, base_url: str, api_key: str | None = None):
        self.base_url = base_url.rstrip("/")
        self.model = "default"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def send(self, method: str, path: str, timeout: float = ANSWER_TIMEOUT_S, **options: Any) -> requests.Response:
        """The reply whatever its status; `timeout` in seconds bounds the wait for each read."""
        # A new connection each time: a server may close an idle one just as the next request leaves.
        session = requests.Session()
        # A proxy or a netrc entry of the caller's machine must not come between a probe and its server.
        session.trust_env = False
        session.verify = os.environ.get("REQUESTS_CA_BUNDLE", True)
        session.headers.update(self._headers)
        try:
            return session.request(method, self.base_url + path, timeout=(CONNECT_TIMEOUT_S, timeout), **options)
        except requests.Timeout:
            raise NoAnswerError(
                f"expected an answer from {path}; came nothing within {timeout:g} s; "
                "likely a scheduler that hangs or died behind a healthy endpoint"
            ) from None
        except requests.RequestException as error:
            raise NoAnswerError(
                f"expected an answer from {path}; came {_cause(error)}; "
                "likely a server that is not there, still loads or stopped: read its log"
            ) from None

    def get(self, path: str, timeout: float = ANSWER_TIMEOUT_S) -> Any:
        """The decoded JSON of a reply with status 200."""
        return _json(self.send("GET", path, timeout), path)

    def post(self, path: str, body: dict[str, Any], timeout: float = ANSWER_TIMEOUT_S) -> Any:
        """The decoded JSON of a reply with status 200."""
        return _json(self.send("POST", path, timeout, json=body), path)

    def context_length(self) -> int:
        """Tokens of the longest sequence that is served, prompt and answer together."""
        return self.get("/v1/models")["data"][0]["max_model_len"]

    def chat_ids(self, question: str) -> list[int]:
        """Token ids of one user message in the model's chat template, ready for `generate`."""
        body = self.post("/tokenize", {"model": self.model, "messages": _messages(question)})
        return body["tokens"]

    def text_of(self, token_ids: list[int]) -> str:
        """What the server's tokenizer decodes `token_ids` to, special tokens left out."""
        return self.post("/detokenize", {"model": self.model, "tokens": token_ids})["text"]

    def generate(self, input_ids: list[int], timeout: float = ANSWER_TIMEOUT_S, **sampling: Any) -> Answer:
        """One completion over the native interface, at temperature 0 unless `sampling` says otherwise."""
        return _native(self.post("/generate", _native_body(input_ids, sampling), timeout))

    def generate_streamed(self, input_ids: list[int], **sampling: Any) -> Streamed:
        """Like `generate`, over server-sent events; each event carries the text so far."""
        body = {**_native_body(input_ids, sampling), "stream": True}
        events = list(self._events("/generate", body))
        if not events:
            raise ProbeError("expected streamed events from /generate; came none; likely a proxy that buffers")
        return Streamed(_native(events[-1]), pieces=sum(bool(event["text"]) for event in events))

    def chat(self, question: str, timeout: float = ANSWER_TIMEOUT_S, **options: Any) -> Answer:
        """One answer over the OpenAI interface, at temperature 0 unless `options` say otherwise."""
        body = self.post("/v1/chat/completions", self.chat_body(question, **options), timeout)
        choice = body["choices"][0]
        return _openai(choice["message"].get("content") or "", choice, body["usage"])

    def chat_streamed(self, question: str, **options: Any) -> Streamed:
        """Like `chat`, over server-sent events; each event carries the next piece of text."""
        body = self.chat_body(question, **options)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        pieces: list[str] = []
        last: dict[str, Any] = {}
        usage: dict[str, Any] = {}
        for event in self._events("/v1/chat/completions", body):
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                pieces.append(choice["delta"].get("content") or "")
                last = choice if choice.get("finish_reason") else last
        if not last or not usage:
            raise ProbeError(
                "expected a finish reason and a usage count at the end of the stream; "
                f"came {len(pieces)} events without; likely a stream that was cut off"
            )
        return Streamed(_openai("".join(pieces), last, usage), pieces=sum(map(bool, pieces)))

    def chat_body(self, question: str, **options: Any) -> dict[str, Any]:
        """The body of a request to /v1/chat/completions, at temperature 0 unless `options` say otherwise."""
        return {"model": self.model, "messages": _messages(question), "temperature": 0, **options}

    def abandon(self, input_ids: list[int], **sampling: Any) -> None:
        """Ask for a streamed completion and hang up after its first event."""
        body = {**_native_body(input_ids, sampling), "stream": True}
        events = self._events("/generate", body)
        next(events, None)
        # Ends the generator, which closes the connection.
        events.close()

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        reply = self.send("POST", path, json=body, stream=True)
        if reply.status_code != 200:
            _json(reply, path)
        try:
            yield from _decoded(reply, path)
        except requests.RequestException as error:
            raise NoAnswerError(
                f"expected the rest of a stream from {path}; came {_cause(error)}; "
                "likely a server that stopped in mid-stream: read its log"
            ) from None
        finally:
            reply.close()


def _decoded(reply: requests.Response, path: str) -> Iterator[dict[str, Any]]:
    """The server-sent events of a reply. Raises ProbeError when the stream ends without saying so."""
    for line in reply.iter_lines(decode_unicode=False):
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            return
        if line.startswith(b"data: "):
            yield json.loads(data)
    raise ProbeError(f"expected [DONE] at the end of the stream from {path}; came its end; likely cut off")


def _messages(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def _native_body(input_ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
    return {"input_ids": input_ids, "sampling_params": {"temperature": 0, **sampling}}


def _native(body: dict[str, Any]) -> Answer:
    meta = body["meta_info"]
    finish = meta["finish_reason"] or {}
    return Answer(
        text=body["text"],
        finish=finish.get("type", ""),
        matched=finish.get("matched"),
        prompt_tokens=meta["prompt_tokens"],
        completion_tokens=meta["completion_tokens"],
        output_ids=tuple(body["output_ids"]),
        meta=meta,
    )


def _openai(text: str, choice: dict[str, Any], usage: dict[str, Any]) -> Answer:
    return Answer(
        text=text,
        finish=choice["finish_reason"],
        matched=choice.get("matched_stop"),
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
    )


def _json(reply: requests.Response, path: str) -> Any:
    if reply.status_code in (401, 403):
        raise ProbeError(
            f"expected to be let in at {path}; came status {reply.status_code}; "
            "likely a missing or wrong --api-key-file"
        )
    if reply.status_code != 200:
        raise ProbeError(
            f"expected status 200 from {path}; came {reply.status_code} {excerpt(reply.text, 60)}; "
            f"likely {_fault_behind(reply.status_code)}"
        )
    try:
        return reply.json()
    except ValueError:
        raise ProbeError(
            f"expected JSON from {path}; came {excerpt(reply.text, 60)}; likely another service there"
        ) from None


def _fault_behind(status: int) -> str:
    if status == 404:
        return "no SGLang server at this address, or a proxy that hides this path"
    return "an error in the server: read its log"


def _cause(error: requests.RequestException) -> str:
    text = str(error)
    for sign in ("Connection refused", "Name or service not known", "Connection reset", "closed connection"):
        if sign in text:
            return f'"{sign}"'
    return type(error).__name__
