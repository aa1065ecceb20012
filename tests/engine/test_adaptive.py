"""A server that changes its tier with the batch answers as the target alone does, and drafts as well as before.

The truth is plain torch: a server without speculation, which other files compare with, would be one more to start.
"""

import json
from dataclasses import dataclass

import pytest
import requests

from tests.engine.churn import assert_exact_under_churn
from tests.engine.conftest import COUNT, FULL, TOKENS
from tests.engine.server import VERSIONS, Answer, Engine, Server, difference

# Batch size -> tier: one for each kind, so that every request that joins or leaves switches.
TIERS = {1: 8, 2: 4, 3: "chain", 4: "ar"}
SOME = COUNT if FULL else 4


@dataclass
class Adaptive:
    version: str
    server: Server

    def together(self, prompt: str, count: int) -> list[Answer]:
        """The prompt `count` times in one message, so that the copies begin and end at the same steps."""
        params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
        body = {"text": [prompt] * count, "sampling_params": params}
        reply = requests.post(f"{self.server.url}/generate", json=body, timeout=600)
        reply.raise_for_status()
        return [Answer(one["output_ids"], one["meta_info"]["spec_verify_ct"]) for one in reply.json()]

    def counts(self) -> dict[str, dict[str, int]]:
        """Steps, requests and committed tokens by tier, as the engine counts them."""
        state = requests.get(f"{self.server.url}/server_info", timeout=60).json()["internal_states"][0]
        assert state["ddtree_recaptures"] == 0
        return state["ddtree_tiers"]


@pytest.fixture(scope="module", params=VERSIONS if FULL else VERSIONS[:1])
def adaptive(request, tmp_path_factory):
    table = tmp_path_factory.mktemp("tiers") / "table.json"
    table.write_text(json.dumps({"tiers": {str(start): name for start, name in TIERS.items()}}))
    with Server(Engine(request.param, tiers=table)) as server:
        yield Adaptive(request.param, server)


def listed(known_answers) -> list[Answer]:
    return [Answer(list(known.tokens[:TOKENS]), 0) for known in known_answers]


@pytest.mark.parametrize("count", [2, 3])
def test_a_tier_accepts_what_its_budget_accepts_alone(adaptive, known_answers, simulated, prompts, count):
    answers = [adaptive.together(prompt, count) for prompt in prompts[:SOME]]
    for copy in range(count):
        assert not difference([each[copy] for each in answers], listed(known_answers)[:SOME])
    steps = sum(answer.steps for each in answers for answer in each)
    shape = {4: (4, 4), "chain": (7, 1)}[TIERS[count]]
    assert count * SOME * TOKENS / steps == pytest.approx(simulated(*shape, count=SOME), rel=0.01)


def test_without_speculation_a_step_is_a_token(adaptive, known_answers, prompts):
    before = adaptive.counts()
    for prompt, known in zip(prompts[:2], listed(known_answers), strict=False):
        for answer in adaptive.together(prompt, 4):
            assert (answer.tokens, answer.steps) == (known.tokens, TOKENS - 1)
    grown = {name: adaptive.counts()[name]["steps"] - before[name]["steps"] for name in before}
    assert grown["ar"] >= 2 * (TOKENS - 1) and not any(grown[name] for name in ("8", "4", "chain"))


def test_tokens_stay_exact_while_every_arrival_and_end_switches(adaptive, known_answers, prompts):
    assert_exact_under_churn(adaptive.server, prompts, listed(known_answers), seed=7)
    counts = adaptive.counts()
    assert all(counts[name]["steps"] for name in map(str, TIERS.values())), counts
    assert counts["ar"]["tokens"] == counts["ar"]["requests"]
    shown = requests.get(f"{adaptive.server.url}/metrics", timeout=60).text
    assert "sglang:ddtree_tier_steps_total{model_name=" in shown and "sglang:ddtree_width" in shown
