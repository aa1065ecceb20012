"""The drafter's committed KV is what the target's hidden states of the committed text make of it.

An error there changes no token: it only lowers the accept length, so no comparison of tokens sees it.
"""

from tests.engine.server import PAIR, Server
from tests.probe_plugin.probed_engine import ProbedEngine
from tests.simulation import load_pair
from tests.simulation.draft_kv import KV_TOKENS, KV_TOLERANCE, compare_draft_kv


def test_committed_drafter_kv_equals_kv_of_the_targets_features(tmp_path, prompts):
    file = tmp_path / "kv.pt"
    with Server(ProbedEngine("0.5.16", budget=8, probe=f"draft_kv:{file}")) as server:
        answer = server.generate(prompts[1], KV_TOKENS)
    assert answer.steps < KV_TOKENS - 5, "hardly a candidate was accepted, so nothing was moved"

    pair = load_pair(PAIR / "target", PAIR / "drafter")
    ids = pair.chat.tokenizer.encode(prompts[1], add_special_tokens=False).ids
    found = compare_draft_kv(file, pair, ids, answer.tokens)
    assert found["largest_relative_error"] < KV_TOLERANCE
