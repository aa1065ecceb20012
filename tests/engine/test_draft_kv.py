"""The drafter's committed KV is what the target's hidden states of the committed text make of it.

An error there changes no token: it only lowers the accept length, so no comparison of tokens sees it.
"""

import json
from concurrent.futures import ThreadPoolExecutor

from tests.engine.server import Server
from tests.probe_plugin.probed_engine import ProbedEngine
from tests.simulation.draft_kv import KV_TOKENS, KV_TOLERANCE, compare_draft_kv


def test_committed_drafter_kv_equals_kv_of_the_targets_features(tmp_path, pair, prompts):
    file, table = tmp_path / "kv.pt", tmp_path / "tiers.json"
    table.write_text(json.dumps({"tiers": {"1": 8, "2": "ar"}}))
    ids = pair.chat.tokenizer.encode(prompts[1], add_special_tokens=False).ids
    with Server(ProbedEngine("0.5.16", tiers=table, probe=f"draft_kv:{file}")) as server:
        answer = server.generate(prompts[1], KV_TOKENS)
        assert answer.steps < KV_TOKENS - 5, "hardly a candidate was accepted, so nothing was moved"
        assert compare_draft_kv(file, pair, ids, answer.tokens)["largest_relative_error"] < KV_TOLERANCE

        # The beginning is decoded without speculation, beside another request: the drafter's KV comes later.
        server.forget()
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(server.generate, prompts[2], KV_TOKENS // 2)
            resumed = server.generate(prompts[1], KV_TOKENS)
            beside.result()
    assert answer.steps + 5 < resumed.steps < KV_TOKENS - 1, "both ways of decoding must have had their part"
    assert compare_draft_kv(file, pair, ids, resumed.tokens)["largest_relative_error"] < KV_TOLERANCE
