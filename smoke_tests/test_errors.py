"""A bad request is refused, and only that request suffers."""

from . import fresh
from .verdict import NoAnswerError, excerpt, expect

CHAT = "/v1/chat/completions"


def bad_requests(server, context_length):
    """Yields (what is wrong, path, keyword arguments of a POST)."""
    message = {"model": server.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    broken = {"data": '{"model": ', "headers": {"Content-Type": "application/json"}}
    yield "broken JSON", CHAT, broken
    yield "no messages", CHAT, {"json": {"model": server.model}}
    yield "text as token limit", CHAT, {"json": {**message, "max_tokens": "many"}}
    yield "negative token limit", CHAT, {"json": {**message, "max_tokens": -1}}
    yield "negative temperature", CHAT, {"json": {**message, "temperature": -1}}
    yield "top-p above 1", CHAT, {"json": {**message, "top_p": 2}}
    token = server.chat_ids("Hello")[0]
    too_long = {"input_ids": [token] * (context_length + 1), "sampling_params": {"max_new_tokens": 1}}
    yield "prompt longer than the context", "/generate", {"json": too_long}
    yield "unknown path", "/v1/no-such-path", {"json": {}}


def test_errors(server, expected, evidence):
    statuses = []
    for fault, path, request in bad_requests(server, server.context_length()):
        try:
            reply = server.send("POST", path, timeout=fresh.TIMEOUT_S, **request)
        except NoAnswerError as silence:
            raise NoAnswerError(f"bad request ({fault}): {silence}") from None
        expect(
            400 <= reply.status_code < 500,
            f"a 4xx status for a bad request ({fault})",
            f"{reply.status_code} {excerpt(reply.text)}",
            "input that reaches the scheduler unchecked",
        )
        statuses.append(reply.status_code)
    try:
        fresh.completion(server, expected.questions["known"][0].ask)
    except NoAnswerError as silence:
        raise NoAnswerError(f"after {len(statuses)} bad requests: {silence}") from None
    seen = ", ".join(map(str, sorted(set(statuses))))
    evidence.say(f"{len(statuses)} bad requests refused ({seen}), still serving")
