"""An answer whose prompt comes out of the prefix cache is the same answer."""

import secrets

from .verdict import difference, expect

TOKENS = 8


def test_prefix_cache(target, server, expected, evidence):
    asked = expected.questions["known"][: 3 if target.thorough else 1]
    differing, cached = [], 0
    for question in asked:
        # A new number makes the first request compute its prompt.
        ids = server.chat_ids(f"Request {secrets.token_hex(4)}. {question.ask}")
        computed = server.generate(ids, max_new_tokens=TOKENS, ignore_eos=True)
        again = server.generate(ids, max_new_tokens=TOKENS, ignore_eos=True)
        reused = (again.meta or {}).get("cached_tokens", 0)
        expect(
            reused >= len(ids) // 2,
            f"most of {len(ids)} prompt tokens to come from the prefix cache",
            str(reused),
            "a server started with --disable-radix-cache, or one that evicts at once for want of KV memory",
        )
        cached += reused
        if computed.output_ids != again.output_ids:
            differing.append((computed, again))
    evidence.say(f"{len(asked)} answers repeated with {cached} tokens cached, {len(differing)} differ", cached=cached)
    if len(differing) > expected.allowed_differing(len(asked)):
        wanted, came = difference(differing[0][0].text, differing[0][1].text)
        expect(False, f"the same text from the prefix cache, {wanted}", came, "KV of rejected drafts kept in the cache")
