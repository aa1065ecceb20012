"""Text that is to be copied comes back character by character."""

import pytest

from .verdict import difference, expect

LIKELY = "tokens accepted at the wrong place of the tree, which prose hides and identifiers show"


@pytest.mark.parametrize("group", ["identifiers", "numbers", "code", "scripts"])
def test_verbatim(group, questions, expected, sequential, evidence):
    copied = [q for q in questions if q in expected.questions[group]]
    if not copied:
        pytest.skip(f"the pair {expected.name} claims no verbatim {group}")
    wrong = [q for q in copied if not q.answered_by(sequential[q.ask].text)]
    evidence.say(f"{len(copied) - len(wrong)} of {len(copied)} exact", wrong=len(wrong))
    for question in wrong[:1]:
        wanted, came = difference(question.answer, sequential[question.ask].text)
        expect(False, f"{wanted} in the answer to {question.ask!r}", f"{came} ({len(wrong)} wrong)", LIKELY)
