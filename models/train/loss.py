"""Cross-entropy of the drafts against the target's own distribution, without keeping any logits."""

from __future__ import annotations

import torch
from torch import Tensor

from models.train.corpus import Batch

_ROWS = {"cuda": 8192, "cpu": 1024}
#: A depth counts 1/e of the one this much above it: a deep draft matters only when all above it were right.
_DECAY = 3.0
#: Share of the target's distribution in the labels; the rest is the token that it chose.
SOFT = 0.5


def sample_anchors(batch: Batch, count: int, generator: torch.Generator) -> Tensor:
    """Positions [S, count] of roots, one at random from each of `count` equal parts of the answer."""
    parts = torch.arange(count, device=batch.begin.device)
    inside = torch.rand(len(batch.begin), count, device=batch.begin.device, generator=generator)
    # The last token of an answer has nothing behind it to draft.
    places = (batch.end - batch.begin - 1)[:, None]
    return batch.begin[:, None] + ((parts + inside) / count * places).long().clamp_max_(places - 1)


def labels(batch: Batch, anchors: Tensor, block_size: int, soft: float) -> tuple[Tensor, Tensor, Tensor]:
    """What the drafts of `anchors` [S, A] should be: ids and their shares, both [S, A, L, K + 1], and weights.

    weights [S, A, L]: zero behind the end of the answer, smaller for deep drafts and for answers that have
    fewer places than anchors.
    """
    depths = torch.arange(1, block_size, device=anchors.device)
    positions = anchors[:, :, None] + depths
    inside = positions < batch.end[:, None, None]
    positions = positions.clamp_max(batch.tokens.shape[1] - 1)
    rows = torch.arange(len(anchors), device=anchors.device)[:, None, None]
    chosen = batch.tokens[rows, positions].unsqueeze(-1)
    ids = torch.cat([chosen, batch.teacher_ids[rows, positions]], dim=-1)
    shares = batch.teacher_probs[rows, positions].float() * soft
    shares = torch.cat([torch.full_like(shares[..., :1], 1 - soft), shares], dim=-1)
    density = ((batch.end - batch.begin - 1) / anchors.shape[1]).clamp_max(1.0)
    weights = inside * density[:, None, None] * torch.exp(-(depths - 1) / _DECAY)
    return ids, shares, weights


class HeadLoss(torch.autograd.Function):
    """Weighted mean of the cross-entropies of hidden states under a frozen output head.

    The gradient is made in the forward pass, slice by slice: [rows, vocabulary] exists for one slice only.
    """

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, ids: Tensor, shares: Tensor, weights: Tensor) -> Tensor:  # noqa: N805
        """hidden [N, H], head [vocabulary, H] of the same dtype, ids and shares [N, K], weights [N]."""
        gradient, total = torch.empty_like(hidden), weights.sum().clamp_min(1e-6)
        step, losses = _ROWS[hidden.device.type], []
        for i in range(0, len(hidden), step):
            part = slice(i, i + step)
            scale = (weights[part] / total)[:, None]
            probabilities = (hidden[part] @ head.T).softmax(-1)
            found = probabilities.gather(1, ids[part]).float().clamp_min(1e-30)
            losses.append(-(scale * shares[part] * found.log()).sum())
            wanted = (head[ids[part]] * shares[part].to(head.dtype).unsqueeze(-1)).sum(1)
            gradient[part] = (probabilities @ head - wanted) * scale.to(head.dtype)
        ctx.save_for_backward(gradient)
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx, upstream: Tensor):  # noqa: N805
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.to(gradient.dtype), None, None, None, None
