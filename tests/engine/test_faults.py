"""The old width bug, brought back on purpose: refused at start, and without that check seen in the tokens.

The bug: the target's attention runs at the drafter's block size D, while W = budget + 1 nodes are verified.
"""

import pytest

from tests.engine.server import Answer, Server, difference
from tests.probe_plugin.probed_engine import ProbedEngine

VERSION, BUDGET, BLOCK_SIZE = "0.5.16", 15, 8
TOKENS = 30


def test_a_target_at_the_drafters_width_is_refused_at_start():
    server = Server(ProbedEngine(VERSION, BUDGET, probe="width_bug:checked"))
    with pytest.raises(RuntimeError, match="server did not start"), server:
        pass
    refusals = [line for line in server.log_text().splitlines() if line.startswith("DDTREE refuses to start")]
    assert len(refusals) == 1
    assert "target attention backend" in refusals[0]
    assert f"runs {BLOCK_SIZE} tokens per request and must run {BUDGET + 1}" in refusals[0]


def test_the_comparison_of_tokens_sees_it_where_the_check_is_off(greedy, prompts):
    expected = [Answer(answer.tokens[:TOKENS], 0) for answer in greedy(VERSION)[:4]]
    with Server(ProbedEngine(VERSION, BUDGET, probe="width_bug:unchecked")) as server:
        found = server.answers(prompts[:4], 4, TOKENS)
    assert difference(found, expected)
