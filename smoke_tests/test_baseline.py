"""Speculation changes the speed and not the text, against recorded servers of the same pair on the same machine."""

import pytest

from . import baseline
from .speed import compare, parted
from .verdict import expect

pytestmark = pytest.mark.full


@pytest.fixture(scope="session")
def arms(pytestconfig, arm) -> dict[str, baseline.Arm]:
    """The recorded arms as far as they can be compared, with this server's own in place of an older one."""
    path = pytestconfig.getoption("--baseline")
    recorded = baseline.load(path) if path else {}
    same = {k: a for k, a in recorded.items() if (a.pair, a.concurrency) == (arm.pair, arm.concurrency)}
    return {**same, arm.kind: arm}


def test_arm_measured(arm, evidence):
    evidence.say(
        f"{arm.kind}: {arm.tokens_per_second:.1f} tok/s at {arm.concurrency} at once",
        tokens_per_second=arm.tokens_per_second,
    )


def test_token_agreement(target, expected, arms, evidence):
    kind = target.facts.kind
    if kind == "ar" or "ar" not in arms:
        pytest.skip("no answers of this pair without speculation are recorded in --baseline")
    ours, alone = arms[kind].answers, arms["ar"].answers
    shared = [prompt for prompt in ours if prompt in alone]
    expect(bool(shared), "answers to the same prompts", "none", "a baseline of another class or pair: record it anew")
    parting = {p: parted(alone[p], ours[p]) for p in shared if alone[p] != ours[p]}
    allowed = expected.allowed_differing(len(shared))
    tokens = sum(len(alone[p]) for p in shared)
    evidence.say(
        f"{len(shared) - len(parting)} of {len(shared)} answers ({tokens} tokens) as without speculation, "
        f"{allowed} may differ",
        differing=len(parting),
        tokens=tokens,
    )
    if len(parting) > allowed:
        prompt, place = next(iter(parting.items()))
        expect(
            False,
            f"the tokens of the server without speculation, but for {allowed} of {len(shared)} answers",
            f"{len(parting)} that part from them, to {prompt!r} at token {place}",
            "a verification that accepts what the target would not say",
        )


def test_tree_faster_than_chain(target, expected, arms, evidence):
    compare("tree", "chain", target, expected, arms, evidence)


def test_chain_faster_than_ar(target, expected, arms, evidence):
    compare("chain", "ar", target, expected, arms, evidence)
