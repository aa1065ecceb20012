"""Candidates of a head that is split over ranks are those of the whole head, and the same on every rank."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sglang_ddtree.tensor_parallel import Head
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[2]
B, L, H = 3, 5, 16
#: Vocabulary and K: rows that divide, rows that do not, a last rank with less than K tokens and one without any.
CASES = [(128, 8), (101, 8), (66, 8), (24, 4)]
PADDING = 64


class Alone:
    world_size = 1


@pytest.fixture(scope="module", params=(2, 4))
def found(request, tmp_path_factory):
    """Cases and what each of 2 or 4 processes made of them."""
    tp, folder = request.param, tmp_path_factory.mktemp("ranks")
    cases = {path.stem: torch.load(path) for path in write_cases(folder, tp)}
    subprocess.run([sys.executable, "-m", "tests.unit.ranks", str(tp), str(folder)], cwd=ROOT, check=True, timeout=120)
    return cases, [torch.load(folder / f"{rank}.pt") for rank in range(tp)]


def write_cases(folder: Path, tp: int) -> list[Path]:
    generator = torch.Generator().manual_seed(0)
    paths = []
    for vocabulary, top_k in CASES:
        rows = -(-vocabulary // PADDING) * PADDING // tp
        hidden = torch.randn(B, L, H, generator=generator)
        head = torch.randn(vocabulary, H, generator=generator)
        # Small whole numbers multiply exactly, and most logits are shared by several tokens.
        tied = torch.randint(-1, 2, (vocabulary, H), generator=generator).float()
        ties = {"hidden": hidden.sign(), "head": tied}
        for name, tensors in (("plain", {"hidden": hidden, "head": head}), ("ties", ties)):
            paths.append(folder / f"case-{name}-{vocabulary}.pt")
            torch.save({**tensors, "top_k": top_k, "padded": rows}, paths[-1])
    return paths


def test_candidates_are_those_of_the_whole_head(found):
    cases, ranks = found
    for name, case in cases.items():
        log_probs, ids = Head(case["head"], 0, Alone()).candidates(case["hidden"], case["top_k"])
        torch.testing.assert_close(ranks[0][name][0], log_probs, rtol=0, atol=2e-6)
        if "plain" in name:
            assert torch.equal(ranks[0][name][1], ids)


class Products(TorchDispatchMode):
    """Shapes of the left operands of all matrix products."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm):
            self.shapes.append(tuple(args[0].shape))
        return operation(*args, **(kwargs or {}))


def test_the_head_is_read_once_for_the_whole_batch():
    # The drafter's states without the root's, as the engine passes them: rows of a larger tensor.
    hidden = torch.randn(B, L + 1, H)[:, 1:]
    with Products() as products:
        Head(torch.randn(128, H), 0, Alone()).candidates(hidden, 4)
    assert products.shapes == [(B * L, H)]


def test_every_rank_has_the_same(found):
    _, ranks = found
    for name in (name for name in ranks[0] if name.startswith("case-")):
        for other in ranks[1:]:
            assert all(torch.equal(mine, theirs) for mine, theirs in zip(ranks[0][name], other[name], strict=True)), (
                name
            )


def test_ties_are_distinct_tokens_in_ascending_order(found):
    cases, ranks = found
    tied = 0
    for name, case in cases.items():
        log_probs, ids = ranks[0][name]
        own = (case["hidden"] @ case["head"].T).log_softmax(-1).gather(-1, ids)
        torch.testing.assert_close(log_probs, own, rtol=0, atol=2e-6)
        assert ids.sort(-1).values.diff(dim=-1).min() > 0, "a token is proposed twice"
        assert log_probs.diff(dim=-1).max() <= 0
        equal = log_probs.diff(dim=-1) == 0
        assert (ids.diff(dim=-1)[equal] > 0).all()
        tied += int(equal.sum())
    assert tied > 50, "hardly a tie was decided"


def test_the_chosen_tokens_are_those_of_rank_0(found):
    _, ranks = found
    assert all(torch.equal(rank["agreed"], torch.arange(6).view(2, 3)) for rank in ranks)


def test_ranks_with_other_settings_are_refused_on_every_rank(found):
    _, ranks = found
    budgets = ", ".join(str(15 + rank) for rank in range(len(ranks)))
    for rank in ranks:
        alike, apart = rank["checked"]
        assert not alike
        assert f"the ranks differ in budget ({budgets}): start all of them alike" in apart
