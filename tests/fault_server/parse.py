"""Bodies of requests into `Request`, with SGLang's refusals."""

from __future__ import annotations

import math
from typing import Any

from .engine import Engine, Request
from .text import chat_prompt

Json = dict[str, Any]


class BadRequestError(ValueError):
    """The request is refused with status 400; the message says why."""


def native_request(body: Json, engine: Engine) -> Request:
    """From the body of `/generate`, whose prompt is `input_ids` or `text`."""
    sampling = body.get("sampling_params") or {}
    ids = body.get("input_ids")
    prompt = body.get("text") if ids is None else engine.tokenizer.text(ids, special=True)
    if prompt is None:
        raise BadRequestError("Either text, input_ids or input_embeds should be provided.")
    return _request(prompt, sampling, sampling.get("max_new_tokens", 128), engine)


def chat_request(body: Json, engine: Engine) -> Request:
    """From the body of `/v1/chat/completions`."""
    if not isinstance(body, dict) or not body.get("messages"):
        raise BadRequestError("messages: Field required")
    limit = body.get("max_completion_tokens", body.get("max_tokens", engine.context_length))
    prompt = chat_prompt(body["messages"])
    return _request(prompt, body, limit, engine)


def prompt_to_tokenize(body: Json) -> str:
    """From the body of `/tokenize`: a conversation or plain text."""
    return chat_prompt(body["messages"]) if body.get("messages") else body["prompt"]


def _request(prompt: str, options: Json, limit: Any, engine: Engine) -> Request:
    temperature = _number(options, "temperature", 1.0)
    top_p = _number(options, "top_p", 1.0)
    _refuse_unless(temperature >= 0, f"temperature must be a non-negative finite number, got {temperature}.")
    _refuse_unless(0 < top_p <= 1, f"top_p must be in (0, 1], got {top_p}.")
    _refuse_unless(isinstance(limit, int) and limit >= 0, f"max_new_tokens must be a whole number from 0, got {limit}.")
    ids = tuple(engine.tokenizer.ids(prompt))
    length = (
        f"The input ({len(ids)} tokens) is longer than the model's context length ({engine.context_length} tokens)."
    )
    _refuse_unless(len(ids) < engine.context_length, length)
    stop = options.get("stop") or ()
    return Request(
        prompt=prompt,
        prompt_ids=ids,
        limit=min(limit, engine.context_length - len(ids)),
        temperature=temperature,
        ignore_eos=bool(options.get("ignore_eos")),
        stops=(stop,) if isinstance(stop, str) else tuple(stop),
    )


def _number(options: Json, name: str, default: float) -> float:
    value = options.get(name)
    if value is None:
        return default
    fits = isinstance(value, (int, float)) and math.isfinite(value)
    _refuse_unless(fits, f"{name} must be a finite number, got {value!r}.")
    return value


def _refuse_unless(held: bool, message: str) -> None:
    if not held:
        raise BadRequestError(message)
