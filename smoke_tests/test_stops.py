"""An answer ends where it must: at the end token, at the token limit, at a stop string."""

import re

import pytest

from .verdict import excerpt, expect

CUT_WRONGLY = "accepted tokens that are not cut where the answer ends"
# Below a step's tokens, and across several steps.
LIMITS = (1, 5)
MORE_LIMITS = (2, 7, 16)


def test_stops_on_eos(target, server, expected, questions, sequential, evidence):
    asked = expected.questions["known"][: 3 if target.thorough else 1]
    for question in asked:
        native = server.generate(server.chat_ids(question.ask), max_new_tokens=question.max_tokens)
        for answer in (native, sequential[question.ask]):
            expect(
                answer.finish == "stop" and answer.matched in expected.eos_ids,
                f"finish reason stop at an end token {expected.eos_ids} for {question.ask!r}",
                f"{answer.finish} at {answer.matched!r} after {answer.completion_tokens} tokens",
                "wrong end tokens in the model's config, or " + CUT_WRONGLY,
            )
        ends = [i for i, token in enumerate(native.output_ids) if token in expected.eos_ids]
        expect(
            ends == [native.completion_tokens - 1],
            f"one end token, as the last of {native.completion_tokens}",
            f"end tokens at {ends} of {len(native.output_ids)}",
            CUT_WRONGLY,
        )
    evidence.say(f"{len(asked)} answers stopped at an end token, over both interfaces")


def test_stops_at_max_tokens(target, server, expected, evidence):
    limits = LIMITS + (MORE_LIMITS if target.thorough else ())
    ids = server.chat_ids(expected.coherence.ask)
    for limit in limits:
        native = server.generate(ids, max_new_tokens=limit, ignore_eos=True)
        chat = server.chat(expected.coherence.ask, max_tokens=limit, ignore_eos=True)
        for answer in (native, chat):
            expect(
                (answer.completion_tokens, answer.finish) == (limit, "length"),
                f"{limit} tokens and the finish reason length",
                f"{answer.completion_tokens} and {answer.finish}",
                CUT_WRONGLY,
            )
        expect(len(native.output_ids) == limit, f"{limit} token ids", f"{len(native.output_ids)}", CUT_WRONGLY)
    evidence.say(f"exactly {', '.join(map(str, sorted(limits)))} tokens when asked for")


def test_stops_on_string(target, server, expected, evidence):
    limit = 48 if target.thorough else 20
    full = server.chat(expected.coherence.ask, max_tokens=limit).text
    stop = stop_word(full)
    if stop is None:
        pytest.skip(f"no word to stop at in {excerpt(full)}")
    wanted = full[: full.index(stop)]
    answer = server.chat(expected.coherence.ask, max_tokens=limit, stop=[stop])
    expect(
        (answer.finish, answer.matched, answer.text) == ("stop", stop, wanted),
        f"the text before {stop!r}, which ends {excerpt(wanted[-40:])}",
        f"{answer.finish} at {answer.matched!r}, ending {excerpt(answer.text[-40:])}",
        "a stop string that is not searched in every accepted token",
    )
    evidence.say(f"cut before {stop!r}")


def stop_word(text: str) -> str | None:
    """The first word of four letters or more in the second half of `text` that is new there, else None."""
    for match in re.finditer(r"\w{4,}", text):
        if match.start() >= len(text) // 2 and text.index(match.group()) == match.start():
            return match.group()
    return None
