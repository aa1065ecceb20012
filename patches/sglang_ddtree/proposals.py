"""The drafter's candidates: per depth the K most likely tokens and their log-probabilities."""

import torch


def top_candidates(hidden: torch.Tensor, lm_head: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates of each depth under the drafter's own marginal.

    Args:
        hidden: [b, L, H], the drafter's states after the root.
        lm_head: [V, H], the target's head, which the drafter borrows.
        top_k: K.

    Returns:
        log_probs: float32 [b, L, K], descending.
        token_ids: int64 [b, L, K].
    """
    logits = torch.matmul(hidden.to(lm_head.dtype), lm_head.T).float()
    values, ids = logits.topk(top_k, dim=-1)
    return values - logits.logsumexp(dim=-1, keepdim=True), ids
