"""In float32 a tree server says what the server without speculation says, and accepts what it must accept."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.churn import assert_exact_under_churn
from tests.engine.conftest import FULL, TOKENS
from tests.engine.server import VERSIONS, Answer, Server, difference
from tests.probe_plugin.probed_engine import ProbedEngine

# Widths below, equal to and above the block size of 8; top-k 1 is the chain.
BUDGETS = (3, 7, 8, 15, 16, 31)
SHAPES = [(7, 1), *[(budget, 4) for budget in BUDGETS]]
OTHER_TREES = [(budget, 8) for budget in BUDGETS]
SOME = [("0.5.16", 7, 1), ("0.5.16", 3, 4), ("0.5.16", 15, 8), ("0.5.23", 8, 4)]
# What requests do to each other depends on the width, not on the tree's form: a plain top-k is enough for it. The
# list begins the longer one, because pytest groups tests of one server by their place in it.
CROWDED = [(version, *shape) for version in VERSIONS for shape in SHAPES] if FULL else SOME
# Block size and window of the drafter: the prompts and answers are five times as long as this window, and the drafter
# was trained on blocks of 8.
WINDOW = 16
WINDOWED = [("0.5.16", 15, 4, 8, WINDOW), ("0.5.23", 15, 4, 16, WINDOW)]
LONGER = WINDOWED[1:]
if FULL:
    WINDOWED += [("0.5.16", 15, 4, 16, WINDOW), ("0.5.23", 15, 4, 8, WINDOW)]
    LONGER = [WINDOWED[1], WINDOWED[2], ("0.5.16", 31, 4, 16, None), ("0.5.23", 15, 4, 16, None)]
FULL_TREES = [(version, *shape) for version in VERSIONS for shape in OTHER_TREES] if FULL else []
CHOSEN = [*CROWDED, *FULL_TREES, *dict.fromkeys([*WINDOWED, *LONGER])]


def name(shape) -> str:
    """Id of a case: version, budget, top-k, and block size and window where they are not the drafter's."""
    version, *numbers = shape
    return "-".join([version, *[f"{key}{number}" for key, number in zip("BKDW", numbers, strict=False) if number]])


def servers(shapes):
    """Run a test on some of the servers."""
    return pytest.mark.parametrize("tree", shapes, ids=name, indirect=True)


crowded = servers(CROWDED)


@dataclass
class Tree:
    """A running tree server and its answers to the prompts, one at a time."""

    engine: ProbedEngine
    server: Server
    answers: list[Answer]
    window: int | None
    reads: Path


@pytest.fixture(scope="session", params=CHOSEN, ids=name)
def tree(request, prompts, tmp_path_factory):
    version, budget, top_k, block_size, window = (*request.param, None, None)[:5]
    reads = tmp_path_factory.mktemp("drafter") / "reads.json"
    flags = () if window is None else ("--speculative-draft-window-size", str(window))
    probe = "" if window is None else f"draft_reads:{reads}"
    engine = ProbedEngine(version, budget, top_k, block_size, flags=flags, probe=probe)
    with Server(engine) as server:
        yield Tree(engine, server, server.answers(prompts, 1, TOKENS), window, reads)


def test_greedy_tokens_equal_those_without_speculation(greedy, tree):
    assert not difference(tree.answers, greedy(tree.engine.version))


def test_accept_length_is_that_of_the_independent_simulation(simulated, tree):
    engine = tree.engine
    committed = sum(len(answer.tokens) for answer in tree.answers)
    served = committed / sum(answer.steps for answer in tree.answers)
    assert served == pytest.approx(
        simulated(engine.budget, engine.top_k, engine.block_size or 8, tree.window), rel=0.01
    )


@servers(WINDOWED)
def test_the_drafter_reads_no_more_than_its_window(tree):
    longest = json.loads(tree.reads.read_text())
    assert longest["context"] > 4 * WINDOW
    assert longest["read"] == WINDOW


@servers(LONGER)
def test_a_block_beyond_the_drafters_training_is_announced_at_the_start(tree):
    log = tree.server.log_text()
    assert "--speculative-dflash-block-size=16 is more than the 8 that the drafter was trained on" in log


@crowded
def test_tokens_stay_exact_four_at_once(greedy, tree, prompts):
    # The prompts were served before, so these requests hit the prefix cache as well.
    assert not difference(tree.server.answers(prompts, 4, TOKENS), greedy(tree.engine.version))


@crowded
def test_tokens_stay_exact_while_requests_come_finish_and_abort(greedy, tree, prompts):
    assert_exact_under_churn(tree.server, prompts, greedy(tree.engine.version), seed=tree.engine.budget)
