"""A target with MLA and routed experts: exact under deep, scattered acceptance, accepted as the oracle foretells."""

import random
from dataclasses import dataclass

import pytest

from tests.engine.conftest import FULL
from tests.engine.server import VERSIONS, Answer, Server
from tests.engine.tiny import BLOCK, VOCAB
from tests.engine.tiny_mla import greedy_answers, write_mla_pair
from tests.probe_plugin.ddtree_oracle import TOP_K, Known, Oracle, save
from tests.probe_plugin.probed_engine import ProbedEngine
from tests.simulation.walk import Proposal, accepted_in_tree, walk_steps

BLOCK_SIZE, TOKENS = 8, 60
# Narrower and wider than the block; the drafter was made for a block of four.
CASES = [(version, budget) for version in VERSIONS for budget in (5, 31)] if FULL else [("0.5.16", 31)]
assert BLOCK_SIZE > BLOCK


@dataclass(frozen=True)
class Pair:
    """The models, what the target answers, and the oracle's file."""

    models: dict
    known: list[Known]
    file: object

    def simulated_accept_length(self, budget: int) -> float:
        """Tokens per step of all answers, by the simulation's tree over the oracle's proposals."""
        oracle = Oracle(self.file, BLOCK_SIZE - 1)
        steps = sum(len(self._walk(oracle, number, budget)) for number in range(len(self.known)))
        return len(self.known) * TOKENS / steps

    def _walk(self, oracle: Oracle, number: int, budget: int) -> tuple[int, ...]:
        known = self.known[number]

        def accepted_at(anchor: int) -> int:
            at = len(known.prompt) + anchor
            proposal = Proposal(oracle.token_ids[number, at].tolist(), oracle.log_probs[number, at].tolist())
            return accepted_in_tree(proposal, known.answer[anchor + 1 : anchor + BLOCK_SIZE], budget)

        return walk_steps(TOKENS, accepted_at)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mla")
    target, drafter = write_mla_pair(folder, seed=2)
    rng = random.Random(0)
    prompts = [rng.choices(range(1, VOCAB - 1), k=length) for length in (3, 7, 20, 45, 5, 11)]
    answers = greedy_answers(target, prompts, TOKENS + 2 * BLOCK_SIZE)
    known = [Known(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    save(folder / "oracle.json", known, VOCAB, seed=3)
    return Pair({"target": target, "drafter": drafter, "latent": True}, known, folder / "oracle.json")


def answers(server, known, concurrency) -> list[Answer]:
    return server.answers([one.prompt for one in known], concurrency, TOKENS)


@pytest.mark.skipif(not FULL, reason="set ENGINE_FULL=1: the tree is compared with another implementation anyway")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_server_without_speculation_says_the_same(pair, version):
    with Server(ProbedEngine(version, **pair.models)) as server:
        found = [answer.tokens for answer in answers(server, pair.known, 1)]
    assert found == [one.answer[:TOKENS] for one in pair.known]


@pytest.mark.parametrize(("version", "budget"), CASES)
def test_tokens_are_the_targets_and_the_accept_length_is_the_oracles(pair, version, budget):
    probe = f"oracle:{pair.file}"
    with Server(ProbedEngine(version, budget, TOP_K, BLOCK_SIZE, probe=probe, **pair.models)) as server:
        alone, together = (answers(server, pair.known, concurrency) for concurrency in (1, 4))
    expected = [one.answer[:TOKENS] for one in pair.known]
    for found in (alone, together):
        assert [answer.tokens for answer in found] == expected
    served = len(pair.known) * TOKENS / sum(answer.steps for answer in alone)
    assert served > 2, "hardly a candidate was accepted, so nothing was moved"
    assert served == pytest.approx(pair.simulated_accept_length(budget), rel=0.01)
