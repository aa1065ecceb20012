"""A completion that no cache can answer, checked: the one proof that a server serves."""

from __future__ import annotations

import secrets

from .client import Answer, Server
from .verdict import excerpt, expect

TOKENS = 16
NONCE_BYTES = 8
# A hexadecimal nonce of 8 bytes is at least this many tokens in any vocabulary that is no list of numbers.
FRESH_TOKENS = 4
TIMEOUT_S = 180


def completion(server: Server, question: str) -> Answer:
    """Ask `question` behind a random number, for exactly TOKENS tokens.

    Raises ProbeError when the reply comes from a cache, is empty, is miscounted or is not its tokens' text.
    """
    ids = server.chat_ids(f"Request {secrets.token_hex(NONCE_BYTES)}. {question}")
    answer = server.generate(ids, timeout=TIMEOUT_S, max_new_tokens=TOKENS, ignore_eos=True)
    computed = answer.prompt_tokens - (answer.meta or {}).get("cached_tokens", 0)
    expect(
        answer.prompt_tokens == len(ids) and computed >= FRESH_TOKENS,
        f"a prompt of {len(ids)} tokens with its random number computed anew",
        f"{answer.prompt_tokens} tokens, {computed} of them computed",
        "a cache in front of the model",
    )
    counts = (answer.completion_tokens, len(answer.output_ids), answer.finish)
    expect(
        counts == (TOKENS, TOKENS, "length"),
        f"exactly {TOKENS} tokens and the finish reason length",
        f"count {counts[0]}, {counts[1]} token ids, {counts[2] or 'no reason'}",
        "a scheduler that counts or cuts wrongly",
    )
    decoded = server.text_of(list(answer.output_ids))
    expect(
        answer.text.strip() != "" and _comparable(decoded) == _comparable(answer.text),
        f"the text of the tokens, {excerpt(decoded)}",
        excerpt(answer.text),
        "wrong weights or a detokenizer that lost its place",
    )
    return answer


def _comparable(text: str) -> str:
    """Without the character that the last token may cut in two: one path shows it, the other does not."""
    return text.rstrip("\ufffd").strip()
