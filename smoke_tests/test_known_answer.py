"""Questions with one right answer get it, word for word where the words are recorded."""

import pytest

from .verdict import difference, excerpt, expect

OTHER_MODEL = (
    "other weights, a wrong tokenizer, or a verification that accepts wrong tokens: "
    "compare with the same server without speculation"
)


def test_known_answer(questions, expected, sequential, evidence):
    judge([q for q in questions if q in expected.questions["known"]], sequential, evidence)


def test_arithmetic(questions, expected, sequential, evidence):
    sums = [q for q in questions if q in expected.questions["arithmetic"]]
    if not sums:
        pytest.skip(f"the pair {expected.name} claims no arithmetic")
    judge(sums, sequential, evidence)


def test_recorded_text(questions, expected, sequential, evidence):
    recorded = [q for q in questions if q.text is not None]
    if not recorded:
        pytest.skip(f"no whole answers are recorded for the pair {expected.name}")
    differing = [q for q in recorded if sequential[q.ask].text != q.text]
    allowed = expected.allowed_differing(len(recorded))
    evidence.say(
        f"{len(recorded) - len(differing)} of {len(recorded)} as recorded, {allowed} may differ",
        differing=len(differing),
    )
    if len(differing) > allowed:
        wanted, came = difference(differing[0].text, sequential[differing[0].ask].text)
        expect(
            False,
            f"at most {allowed} of {len(recorded)} answers other than recorded; to {differing[0].ask!r} {wanted}",
            f"{len(differing)}, and {came}",
            OTHER_MODEL,
        )


def judge(asked, sequential, evidence):
    wrong = [q for q in asked if not q.answered_by(sequential[q.ask].text)]
    evidence.say(f"{len(asked) - len(wrong)} of {len(asked)} right", wrong=len(wrong))
    for question in wrong[:1]:
        expect(
            False,
            f"{question.answer!r} in the answer to {question.ask!r}",
            f"{excerpt(sequential[question.ask].text)} ({len(wrong)} of {len(asked)} wrong)",
            OTHER_MODEL,
        )
