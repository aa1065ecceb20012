"""Sampling through the tree is lossless: the served completions follow the distribution of plain decoding.

Two samples are compared, one from each server, by the joint of the first three tokens. The first of them comes from
the prefill, the others from tree steps. A request that carries all prompts reaches the scheduler as one message, so
with the server's random seed the samples, and the p-values, repeat from run to run on one machine.
"""

from collections import Counter

import pytest
import requests
from scipy.stats import chi2_contingency

from tests.engine.conftest import FULL
from tests.engine.server import VERSIONS, Answer, Engine, Server
from tests.engine.tiny import VOCAB, write_pair

SAMPLES, JOINT, TOKENS, GREEDY_TOKENS = 3600, 3, 5, 24
LEAST_EXPECTED = 5
PROMPT = [3, 17, 8, 11, 5, 20]
GREEDY_PROMPTS = [[first, 7, 2 * first % VOCAB, 13] for first in range(1, 9)]

NUCLEUS = {"temperature": 0.8, "top_p": 0.9}
HOT_NUCLEUS = {"temperature": 1.1, "top_p": 0.9}
FILTERED = {"temperature": 1.0, "top_k": 5, "min_p": 0.05}
GREEDY = {"temperature": 0}


def batch(server: Server, prompts, sampling) -> list[Answer]:
    """Completions of one request that carries many prompts; `sampling` has one entry per prompt."""
    params = [{"max_new_tokens": TOKENS, "ignore_eos": True, **entry} for entry in sampling]
    body = {"input_ids": prompts, "sampling_params": params}
    reply = requests.post(f"{server.url}/generate", json=body, timeout=600)
    reply.raise_for_status()
    return [Answer(one["output_ids"], one["meta_info"].get("spec_verify_ct", 0)) for one in reply.json()]


def draw(server: Server, sampling: dict) -> list[Answer]:
    return batch(server, [PROMPT] * SAMPLES, [sampling] * SAMPLES)


def greedy(server: Server) -> list[list[int]]:
    """Greedy tokens, one prompt at a time."""
    return [server.generate(prompt, GREEDY_TOKENS).tokens for prompt in GREEDY_PROMPTS]


def greedy_among_sampled(server: Server) -> list[list[int]]:
    """The same prompts' tokens out of one batch in which every other request samples."""
    prompts = [prompt for one in GREEDY_PROMPTS for prompt in (one, PROMPT)]
    pair = [{"max_new_tokens": GREEDY_TOKENS, **entry} for entry in (GREEDY, NUCLEUS)]
    return [answer.tokens for answer in batch(server, prompts, pair * len(GREEDY_PROMPTS))[::2]]


# Thousands of completions for each version: a plain run takes one.
@pytest.fixture(scope="module", params=VERSIONS if FULL else VERSIONS[:1])
def served(request, tmp_path_factory):
    """What both servers of one version answered, by name."""
    target, drafter = write_pair(tmp_path_factory.mktemp("tiny"), seed=1)
    flags = ("--skip-tokenizer-init", "--random-seed", "7", "--max-running-requests", "64")
    models = {"target": target, "drafter": drafter, "flags": flags}
    with Server(Engine(request.param, **models)) as plain:
        answers = {
            "plain nucleus": draw(plain, NUCLEUS),
            "plain hot nucleus": draw(plain, HOT_NUCLEUS),
            "plain filtered": draw(plain, FILTERED),
            "plain greedy": greedy(plain),
        }
    with Server(Engine(request.param, budget=8, top_k=4, **models)) as tree:
        answers["tree nucleus"] = draw(tree, NUCLEUS)
        answers["tree filtered"] = draw(tree, FILTERED)
        answers["tree mixed"] = greedy_among_sampled(tree)
    return answers


def p_value(left: list[Answer], right: list[Answer]) -> float:
    """Two-sample chi-square test of the joint of the first tokens, rare outcomes pooled into one cell."""
    first, second = (Counter(tuple(a.tokens[:JOINT]) for a in side) for side in (left, right))
    share = min(len(left), len(right)) / (len(left) + len(right))
    common, rare = [], [0, 0]
    for outcome, total in (first + second).items():
        counts = [first[outcome], second[outcome]]
        if total * share < LEAST_EXPECTED:
            rare = [a + b for a, b in zip(rare, counts, strict=True)]
        else:
            common.append(counts)
    cells = [*common, rare] if sum(rare) else common
    assert len(cells) > 20, f"only {len(cells)} outcomes are frequent enough to compare"
    return chi2_contingency(cells).pvalue


def accept_length(answers: list[Answer]) -> float:
    """Tokens per target step after the prefill's token; the last step's surplus is cut, which lowers it."""
    return sum(len(a.tokens) - 1 for a in answers) / sum(a.steps for a in answers)


@pytest.mark.parametrize("name", ["nucleus", "filtered"])
def test_the_tree_samples_the_distribution_of_plain_decoding(served, name):
    tree, plain = served[f"tree {name}"], served[f"plain {name}"]
    p, accepted = p_value(tree, plain), accept_length(tree)
    assert accepted > 1.1, f"accept length {accepted:.3f}: the tree hardly took part"
    assert p > 0.01, f"p = {p:.2e} at accept length {accepted:.3f}"


def test_another_temperature_is_told_apart(served):
    """Negative control: the comparison has the power to see a distribution that is not the target's."""
    p = p_value(served["tree nucleus"], served["plain hot nucleus"])
    assert p < 1e-6, f"p = {p:.2e}"


def test_greedy_requests_among_sampled_ones_answer_as_plain_decoding(served):
    assert served["tree mixed"] == served["plain greedy"]
