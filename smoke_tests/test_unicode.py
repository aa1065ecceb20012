"""Characters of several bytes survive the tokenizer, the stream and the interfaces."""

import pytest

from . import fresh
from .verdict import difference, excerpt, expect

ROUND_TRIPS = (
    "Zażółć gęślą jaźń",
    "Ελληνικά, русский, 日本語, 한국어, עברית, العربية, हिन्दी",
    "e\u0301 is not \u00e9",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7 \U0001f600",
    "tab\tnewline\nand  two  spaces ",
    "\u202eright to left\u202c and a zero\u200bwidth space",
)
# Answers that start with these often hold characters of several tokens.
PROMPTS = ("\U0001f600\U0001f389\U0001f680", "日本語で答えてください。")
TOKENS = 8


def test_unicode_tokens(server, evidence):
    for text in ROUND_TRIPS:
        body = {"model": server.model, "prompt": text, "add_special_tokens": False}
        back = server.text_of(server.post("/tokenize", body)["tokens"])
        wanted, came = difference(text, back)
        expect(back == text, f"the text {wanted} back from its tokens", came, "another tokenizer than the model's")
    evidence.say(f"{len(ROUND_TRIPS)} texts come back from their tokens")


def test_unicode_stream(target, server, evidence):
    prompts = PROMPTS if target.thorough else PROMPTS[:1]
    for prompt in prompts:
        server.chat(prompt, max_tokens=1)
        whole = server.chat(prompt, max_tokens=TOKENS, ignore_eos=True).text
        streamed = server.chat_streamed(prompt, max_tokens=TOKENS, ignore_eos=True).answer.text
        wanted, came = difference(whole, streamed)
        # The limit may cut the last character in two.
        expect(
            streamed.rstrip("\ufffd") == whole.rstrip("\ufffd"),
            f"the text {wanted} from the stream",
            came,
            "a detokenizer that cuts a character between two steps",
        )
    evidence.say(f"{len(prompts)} answers equal, as {excerpt(whole, 40)}")


@pytest.mark.full
def test_unicode_edges(server, expected, evidence):
    edges = ("", " ", "\x00", "\ufffd", "<|im_end|>", "a" * 2000, "\U0001f600" * 200, "\n" * 200)
    statuses = []
    for edge in edges:
        reply = server.send("POST", "/v1/chat/completions", json=server.chat_body(edge, max_tokens=2))
        expect(
            reply.status_code == 200 or 400 <= reply.status_code < 500,
            f"an answer or a 4xx status to the message {excerpt(edge, 20)}",
            f"{reply.status_code} {excerpt(reply.text)}",
            "input that reaches the scheduler unchecked",
        )
        statuses.append(reply.status_code)
    fresh.completion(server, expected.questions["known"][0].ask)
    evidence.say(f"{statuses.count(200)} odd messages answered, {len(edges) - statuses.count(200)} refused")
