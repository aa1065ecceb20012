"""Two ranks serve what one serves: the same tokens in the same steps, from trees that both ranks share."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.engine.conftest import FULL
from tests.engine.server import VERSIONS, Answer, Engine, Server, difference
from tests.engine.tiny import write_pair
from tests.probe_plugin.probed_engine import ProbedEngine
from tests.probe_plugin.rank_trees import RankTrees

# Split at 64, so that the second rank has fewer tokens than the first and fewer than top-k.
VOCAB, TOKENS = 100, 60
SHAPE = {"budget": 63, "top_k": 40}


@dataclass(frozen=True)
class Ranks:
    """What one rank and two ranks answered, greedy and sampled, and the trees of each of the two."""

    alone: list[Answer]
    shared: list[Answer]
    sampled: list[Answer]
    trees: RankTrees


@pytest.fixture(scope="module", params=VERSIONS if FULL else VERSIONS[:1])
def ranks(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    target, drafter = write_pair(folder, seed=1, vocab=VOCAB)
    rng = random.Random(0)
    prompts = [[rng.randrange(1, VOCAB - 1) for _ in range(rng.randrange(4, 24))] for _ in range(8)]
    models = {"target": target, "drafter": drafter, "flags": ("--skip-tokenizer-init",)}
    with Server(Engine(request.param, **SHAPE, **models)) as server:
        alone = server.answers(prompts, 1, TOKENS)
    engine = ProbedEngine(request.param, **SHAPE, **models, tp=2, probe=f"trees:{folder}")
    with Server(engine) as server:
        shared = server.answers(prompts, 1, TOKENS)
        crowded = server.answers(prompts, 4, TOKENS)
        with ThreadPoolExecutor(4) as pool:
            sampled = list(pool.map(lambda prompt: server.generate(prompt, TOKENS, temperature=1.0), prompts))
    assert not difference(crowded, alone)
    return Ranks(alone, shared, sampled, RankTrees.read(folder))


def test_two_ranks_say_what_one_says(ranks):
    assert not difference(ranks.shared, ranks.alone)


def test_two_ranks_take_the_steps_of_one(ranks):
    assert [answer.steps for answer in ranks.shared] == [answer.steps for answer in ranks.alone]
    assert sum(answer.steps for answer in ranks.shared) < 0.9 * len(ranks.shared) * TOKENS, "hardly any accepted"


def test_both_ranks_verify_the_same_trees_and_commit_the_same_choices(ranks):
    assert len(ranks.trees.ranks) == 2
    assert ranks.trees.first_difference is None
    assert max(ranks.trees.tokens()) >= 64 > min(ranks.trees.tokens()), "the trees hold tokens of one rank only"


def test_samples_are_drawn_once_for_all_ranks(ranks):
    """Each rank has random numbers of its own here, so that without the broadcast their choices would part."""
    assert all(len(answer.tokens) == TOKENS for answer in ranks.sampled)
    assert len({tuple(answer.tokens[:10]) for answer in ranks.sampled}) > 1
