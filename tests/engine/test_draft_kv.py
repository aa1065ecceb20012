"""The drafter's committed KV is what the target's hidden states of the committed text make of it.

An error there changes no token: it only lowers the accept length, so no comparison of tokens sees it.
"""

import torch

from tests.engine.server import PAIR, Server
from tests.probe_plugin.probed_engine import ProbedEngine
from tests.simulation import greedy_answer, load_pair

TOKENS = 40
# The last step may commit tokens beyond the end, and under overlap scheduling one more step may run.
OVERRUN = 16
TOLERANCE = 1e-3


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference in units of the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max())


def test_committed_drafter_kv_equals_kv_of_the_targets_features(tmp_path, prompts):
    file = tmp_path / "kv.pt"
    with Server(ProbedEngine("0.5.16", budget=8, probe=f"draft_kv:{file}")) as server:
        answer = server.generate(prompts[1], TOKENS)
    saved = torch.load(file)

    pair = load_pair(PAIR / "target", PAIR / "drafter")
    ids = pair.chat.tokenizer.encode(prompts[1], add_special_tokens=False).ids
    known = greedy_answer(pair, ids, TOKENS + OVERRUN, ignore_eos=True)
    assert answer.tokens == list(known.tokens[:TOKENS])
    assert answer.steps < TOKENS - 5, "hardly a candidate was accepted, so nothing was moved"

    # The last token is the root of the next step: its KV does not exist yet.
    committed = saved["committed"]
    assert len(ids) + TOKENS - 1 <= committed <= len(ids) + len(known.tokens)
    assert len(saved["keys"]) == len(saved["values"]) == pair.drafter.num_layers
    for layer, expected in enumerate(known.context):
        for name, rows in zip(("keys", "values"), expected, strict=True):
            wanted = rows[:, :committed].transpose(0, 1)
            error = relative_error(saved[name][layer], wanted)
            assert error < TOLERANCE, f"{name} of drafter layer {layer} are off by {error:.1e}"
