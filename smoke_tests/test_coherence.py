"""Longer answers are text, not loops: loops have excellent acceptance and speed."""

from . import text
from .verdict import excerpt, expect

# Closing marks of Latin text and code, then of typographic quotes, Chinese and Japanese.
SENTENCE_ENDS = (*".!?:;)]}\"'`*", *"\u2026\u00bb\u201d\u2019", *"\u3002\uff01\uff1f\u300d\u300f\uff09")
LOOP = "a loop: wrong positions or mask in verification, or KV of a rejected branch kept"
# Lists and code repeat more than the one answer whose bounds are recorded.
MOST_REPEATED = 0.6


def test_coherence(expected, answered, evidence):
    wanted = expected.coherence
    essay = next(one for one in answered.asked if one.prompt == wanted.ask)
    answer, speed = essay.answer, essay.answer.completion_tokens / essay.seconds
    found = text.measure(answer.output_ids, answer.text, wanted.script)
    evidence.say(f"{found}, {speed:.1f} tok/s", tokens_per_second=speed, **vars(found))
    expect_coherent(found, answer, wanted)
    shown = answer.text.rstrip()
    expect(
        answer.finish == "stop" and shown.endswith(SENTENCE_ENDS),
        "an answer that ends by itself, with a full sentence",
        f"{answer.finish} after {answer.completion_tokens} tokens, ending {excerpt(shown[-40:])}",
        "end tokens that are never accepted, or text cut short",
    )
    for one in answered.asked:
        expect_no_loop(text.measure(one.answer.output_ids, one.answer.text, wanted.script), one.answer, wanted.max_run)


def expect_no_loop(found, answer, max_run, most_repeated=MOST_REPEATED):
    expect(
        found.longest_run <= max_run and found.repeated_share <= most_repeated,
        f"no run over {max_run} tokens and at most {most_repeated:.0%} repeated 4-grams",
        f"{found.longest_run} and {found.repeated_share:.0%} in {excerpt(answer.text[-120:])}",
        LOOP,
    )


def expect_coherent(found, answer, wanted):
    expect_no_loop(found, answer, wanted.max_run, wanted.max_repeated_share)
    end = excerpt(answer.text[-120:])
    expect(
        found.foreign_share <= wanted.max_foreign_share,
        f"at most {wanted.max_foreign_share:.0%} of the letters not {wanted.script}",
        f"{found.foreign_share:.0%} in {end}",
        "token ids that are shifted or mixed up, or wrong weights in the last layer",
    )
    expect(
        found.entropy >= wanted.min_entropy,
        f"at least {wanted.min_entropy:g} bits per token",
        f"{found.entropy:.2f} in {end}",
        "an answer of few words over and over, which no single run or n-gram shows",
    )
