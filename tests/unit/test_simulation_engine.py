"""The simulation on the embedded pair, taken from CACHE_DIR."""

import dataclasses

import pytest
import torch

from tests.simulation import greedy_answer, load_pair, pooled_accept_length, walk
from tests.simulation.defaults import QUESTIONS, pair_dir
from tests.simulation.pair import propose

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def pair():
    return load_pair(pair_dir() / "target", pair_dir() / "drafter")


@pytest.fixture(scope="module")
def answers(pair):
    return [greedy_answer(pair, pair.chat.prompt_ids(q), max_new_tokens=40) for q in QUESTIONS[:4]]


def test_knows_the_capital_of_france(pair, answers):
    answer = answers[0]
    assert pair.chat.text(list(answer.tokens[: answer.length])) == "The capital of France is Paris."
    assert answer.tokens[answer.length - 1] in pair.chat.eos_token_ids


def test_one_pass_agrees_with_decoding(pair, answers):
    for answer in answers:
        stream = pair.target.forward([*answer.prompt_ids, *answer.tokens]).streams[-1]
        predicted = pair.target.logits(stream).argmax(-1)[len(answer.prompt_ids) - 1 : -1]
        assert predicted.tolist() == list(answer.tokens)


def test_proposal_does_not_depend_on_what_follows(pair, answers):
    whole = answers[1]
    short = greedy_answer(pair, whole.prompt_ids, max_new_tokens=6)
    for anchor in range(short.length):
        a, b = (propose(pair, answer, anchor, 8) for answer in (whole, short))
        assert [row[0] for row in a.tokens] == [row[0] for row in b.tokens]
        assert torch.allclose(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-3)


def test_trees_beat_the_chain(pair, answers):
    def pooled(*args):
        return pooled_accept_length(walk(pair, answer, *args) for answer in answers)

    chain = pooled("chain")
    assert 1 < chain < pooled("tree", 15, 8) < pooled("tree", 31, 8) < 8


def test_features_carry_the_acceptance(pair, answers):
    """The drafter does worse when the layers are in another order, and when it sees none of them."""

    def chain_with(change):
        walks = []
        for answer in answers:
            context = pair.drafter.context(change(answer.features))
            changed = dataclasses.replace(answer, context=context, proposals={})
            walks.append(walk(pair, changed, "chain"))
        return pooled_accept_length(walks)

    features_per_layer = answers[0].features.shape[1] // len(pair.drafter.target_layer_ids)
    right = chain_with(lambda features: features)
    assert right > 1.2 * chain_with(torch.zeros_like)
    assert right > 1.2 * chain_with(lambda features: features.roll(features_per_layer, dims=-1))
