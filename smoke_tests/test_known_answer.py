"""Questions with one right answer get it."""

from .verdict import excerpt, expect


def test_known_answer(expected, sequential, evidence):
    wrong = [q for q in expected.questions if not q.answered_by(sequential[q.ask])]
    asked = len(expected.questions)
    evidence.say(f"{asked - len(wrong)} of {asked} right", wrong=len(wrong))
    for question in wrong[:1]:
        expect(
            False,
            f"{question.answer!r} in the answer to {question.ask!r}",
            f"{excerpt(sequential[question.ask])} ({len(wrong)} of {asked} wrong)",
            "other weights, a wrong tokenizer, or a verification that accepts wrong tokens: "
            "compare with the same server without speculation",
        )
