"""A streamed answer is the same answer."""

import pytest

from .verdict import difference, expect

LIKELY = "a stream that drops or repeats tokens when a step commits several"
TOKENS, MORE_TOKENS = 12, 48


@pytest.mark.full
def test_streaming_native(server, expected, evidence):
    ids = server.chat_ids(expected.coherence.ask)
    # The first request fills the prefix cache, so that both others start from the same state.
    server.generate(ids, max_new_tokens=1)
    whole = server.generate(ids, max_new_tokens=MORE_TOKENS)
    streamed = server.generate_streamed(ids, max_new_tokens=MORE_TOKENS)
    expect_same(whole, streamed)
    expect(
        streamed.answer.output_ids == whole.output_ids,
        f"the same {len(whole.output_ids)} token ids",
        f"{len(streamed.answer.output_ids)} token ids, others",
        LIKELY,
    )
    evidence.say(f"{whole.completion_tokens} tokens equal, in {streamed.pieces} pieces")


def test_streaming_chat(target, server, expected, evidence):
    tokens = MORE_TOKENS if target.thorough else TOKENS
    server.chat(expected.coherence.ask, max_tokens=1)
    whole = server.chat(expected.coherence.ask, max_tokens=tokens)
    streamed = server.chat_streamed(expected.coherence.ask, max_tokens=tokens)
    expect_same(whole, streamed)
    evidence.say(f"{whole.completion_tokens} tokens equal, in {streamed.pieces} pieces")


def expect_same(whole, streamed):
    got = streamed.answer
    wanted, came = difference(whole.text, got.text)
    expect(got.text == whole.text, f"the text {wanted}", came, LIKELY)
    expect(
        (got.finish, got.matched, got.prompt_tokens, got.completion_tokens)
        == (whole.finish, whole.matched, whole.prompt_tokens, whole.completion_tokens),
        f"{whole.completion_tokens} tokens and {whole.finish} at {whole.matched!r}",
        f"{got.completion_tokens} and {got.finish} at {got.matched!r}",
        LIKELY,
    )
    expect(streamed.pieces > 1, "several pieces of text", str(streamed.pieces), "a proxy that buffers the stream")
