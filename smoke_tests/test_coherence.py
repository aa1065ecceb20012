"""A longer answer is text, not a loop: loops have excellent acceptance and speed."""

import time

from .repetition import longest_run, repeated_share
from .verdict import excerpt, expect

# Closing marks of Latin text and code, then of typographic quotes, Chinese and Japanese.
SENTENCE_ENDS = (*".!?:;)]}\"'`*", *"\u2026\u00bb\u201d\u2019", *"\u3002\uff01\uff1f\u300d\u300f\uff09")


def test_coherence(server, expected, evidence):
    wanted = expected.coherence
    ids = server.chat_ids(wanted.ask)
    began = time.monotonic()
    answer = server.generate(ids, max_new_tokens=wanted.max_tokens)
    speed = answer.completion_tokens / (time.monotonic() - began)
    run, repeated = longest_run(answer.output_ids), repeated_share(answer.output_ids)
    evidence.say(
        f"{answer.completion_tokens} tokens, longest run {run}, {repeated:.0%} of 4-grams repeated, {speed:.1f} tok/s",
        longest_run=run,
        repeated_share=repeated,
        tokens_per_second=speed,
    )
    expect(
        run <= wanted.max_run and repeated <= wanted.max_repeated_share,
        f"no run over {wanted.max_run} tokens and at most {wanted.max_repeated_share:.0%} repeated 4-grams",
        f"{run} and {repeated:.0%} in {excerpt(answer.text[-120:])}",
        "a loop: wrong positions or mask in verification, or KV of a rejected branch kept",
    )
    text = answer.text.rstrip()
    expect(
        answer.finish == "stop" and text.endswith(SENTENCE_ENDS),
        f"an answer that ends by itself within {wanted.max_tokens} tokens, with a full sentence",
        f"{answer.finish} after {answer.completion_tokens} tokens, ending {excerpt(text[-40:])}",
        "end tokens that are never accepted, or text cut short",
    )
