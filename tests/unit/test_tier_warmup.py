"""Before the first request every tier's operations have run once, and only the slot of padding was written."""

from types import SimpleNamespace

import pytest
import torch
from sglang_ddtree import ops, tier_warmup, tiers
from sglang_ddtree.settings import Settings

BLOCK, FEATURES = 8, 6
TABLE = tiers.read("1:15,2:4,3:chain,4:ar", 1000)


class Worker:
    """What the warm-up needs of the worker; notes what it is asked for."""

    device = "cpu"

    def __init__(self):
        settings = Settings(budget=15, top_k=4, block_size=BLOCK, table=TABLE)
        engines = {tier.name: SimpleNamespace(tier=tier, backend=None) for tier in settings.tiers()}
        self.tiers = SimpleNamespace(by_name=engines)
        self.draft_model = SimpleNamespace(fc=torch.nn.Linear(FEATURES, 2))
        self.model_runner = SimpleNamespace(dtype=torch.float32)
        self.kv = torch.arange(40.0).view(20, 2)
        self.kv_mover = ops.KVMover([self.kv])
        self.appended = []

    def _append_target_hidden_to_draft_kv_by_loc(self, target_hidden, cache_loc, positions, **dense):
        assert target_hidden.shape == (len(cache_loc), FEATURES) and len(positions) == len(cache_loc)
        assert not cache_loc.any(), "a slot of a request was written"
        self.appended.append((len(cache_loc), sorted(dense)))


@pytest.fixture
def used(monkeypatch):
    """Widths that each operation ran at."""
    widths = {}

    def noting(name):
        original = getattr(ops, name)

        def noted(*args, **kwargs):
            found = next(len(arg.parent[0]) for arg in args if isinstance(arg, ops.Tree))
            widths.setdefault(name, []).append(found)
            return original(*args, **kwargs)

        return noted

    for name in ("finalize", "accept"):
        monkeypatch.setattr(ops, name, noting(name))
    return widths


def test_every_tier_runs_once_and_moves_nothing(used):
    worker = Worker()
    before = worker.kv.clone()
    tier_warmup.warm_up(worker)
    assert used == {"finalize": [16, 5], "accept": [16, 5, BLOCK, 1]}
    dense = ["cache_loc_2d", "commit_lens"]
    assert worker.appended == [(BLOCK, dense)] * 3 + [(1, [])]
    assert torch.equal(worker.kv, before)
