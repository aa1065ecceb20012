"""The drafter's KV of steps without speculation: every token once, at its place, before anything else runs."""

from types import SimpleNamespace

import torch
from sglang_ddtree.draft_backlog import STEPS, DraftBacklog


class Pool:
    """Takes what the backlog writes."""

    def __init__(self):
        self.rows, self.writes = {}, 0

    def append(self, target_hidden, cache_loc, positions):
        self.writes += 1
        for hidden, slot, position in zip(target_hidden, cache_loc.tolist(), positions.tolist(), strict=True):
            self.rows[slot] = (position, hidden.tolist())


def batch(*names):
    return SimpleNamespace(reqs=[SimpleNamespace(rid=name) for name in names])


def steps(backlog, which, count, first=0):
    """`count` steps of two requests; request r's token of step s is at slot 100 r + s, position 10 r + s."""
    captured = torch.empty(2, 3)
    for step in range(first, first + count):
        captured.copy_(torch.tensor([[step, 0, 0], [step, 1, 0]]))
        backlog.add(which, captured, torch.tensor([step, 100 + step]), torch.tensor([step, 10 + step]))


def test_every_token_is_written_once_at_its_place():
    pool = Pool()
    backlog = DraftBacklog(pool.append)
    steps(backlog, batch("a", "b"), STEPS + 3)
    assert pool.writes == 1, "a full backlog is written by itself"
    backlog.flush()
    backlog.flush()
    assert pool.writes == 2
    expected = {100 * r + s: (10 * r + s, [s, r, 0]) for r in (0, 1) for s in range(STEPS + 3)}
    assert pool.rows == expected


def test_other_requests_do_not_follow_until_it_is_written():
    backlog = DraftBacklog(Pool().append)
    assert backlog.follows(batch("a"))
    steps(backlog, batch("a", "b"), 1)
    assert backlog.follows(batch("a", "b"))
    assert not backlog.follows(batch("a")) and not backlog.follows(batch("a", "c"))
    backlog.flush()
    assert backlog.follows(batch("c"))


def test_a_larger_batch_finds_room_after_a_smaller_one():
    pool = Pool()
    backlog = DraftBacklog(pool.append)
    steps(backlog, batch("a", "b"), 1)
    backlog.flush()
    hidden = torch.arange(12.0).view(4, 3)
    backlog.add(batch(*"abcd"), hidden, torch.arange(4), torch.arange(4))
    backlog.flush()
    assert pool.rows[3] == (3, [9, 10, 11])
