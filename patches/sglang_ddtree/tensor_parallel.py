"""What the ranks of a tensor-parallel engine must agree on: candidates, chosen tokens, settings.

The target's head is split by vocabulary, so each rank sees the logits of its own tokens only. Every rank merges the
same gathered numbers in the same order, hence all grow the same trees; a choice that may depend on a random number
generator or on code of a user is rank 0's. Ranks that part would wait for each other's collectives for ever.

The group's own operations are used, in and outside CUDA graphs: SGLang switches them to what can be captured.
"""

from dataclasses import asdict, dataclass

import torch

from sglang_ddtree.selfcheck import StartRefused, installed_series

TOKEN_BITS = 32


@dataclass(frozen=True)
class Head:
    """This rank's part of the target's head, which the drafter borrows.

    weight: [tokens, H], without padding and added tokens; no row where the vocabulary ends before this rank.
    first_token: the token of the first row.
    group: SGLang's group of the ranks that hold the other parts.
    """

    weight: torch.Tensor
    first_token: int
    group: object

    @classmethod
    def of(cls, model, group) -> "Head":
        """The head of a loaded target.

        Raises:
            StartRefused: nobody knows which tokens this rank's rows are.
        """
        shard = getattr(model.lm_head, "shard_indices", None)
        if shard is not None:
            return cls(model.lm_head.weight[: shard.num_org_elements], shard.org_vocab_start_index, group)
        if group.world_size > 1:
            kind = type(model.lm_head).__name__
            raise StartRefused(f"a head of type {kind} does not say how it is split: set --tp-size to 1")
        return cls(model.lm_head.weight, 0, group)

    def candidates(self, hidden: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidates of each depth under the drafter's own marginal, the same on every rank.

        Ranks put the smaller of equally likely tokens first. Which of equal tokens are among the best `top_k` of
        their own part is left to `torch.topk`: only the rank that holds them decides.

        Args:
            hidden: [b, L, H], the drafter's states after the root.
            top_k: K, at most the vocabulary.

        Returns:
            log_probs: float32 [b, L, K], descending.
            token_ids: int64 [b, L, K].
        """
        # As one matrix: a batch of small ones would read the whole head once for each request.
        rows = hidden.to(self.weight.dtype).reshape(-1, hidden.shape[-1])
        logits = torch.mm(rows, self.weight.T).float().view(*hidden.shape[:-1], -1)
        missing = top_k - logits.shape[-1]
        if missing > 0:
            logits = torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
        values, ids = logits.topk(top_k, dim=-1)
        total = logits.logsumexp(dim=-1, keepdim=True)
        if self.group.world_size == 1:
            return values - total, ids
        return _merge(*_gathered(values, ids + self.first_token, total, self.group))


def _gathered(values, ids, total, group) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Candidates and sums of all ranks in one collective: values and ids [tp, b, L, K], totals [tp, b, L, 1]."""
    top_k = values.shape[-1]
    # As integers, because gathering is copying and 24 bits of a float32 do not hold every token.
    packed = torch.cat([values.view(torch.int32), total.view(torch.int32), ids.int()], dim=-1)
    everyone = group.all_gather(packed, dim=0).view(group.world_size, *packed.shape)
    values, total, ids = everyone.split([top_k, 1, top_k], dim=-1)
    return values.view(torch.float32), ids, total.view(torch.float32)


def _merge(values, ids, totals) -> tuple[torch.Tensor, torch.Tensor]:
    """The best K of all ranks' candidates and their log-probabilities."""
    top_k = values.shape[-1]
    values, ids = (part.movedim(0, -2).flatten(-2) for part in (values, ids))
    # No two keys are equal, so the order is not left to how topk treats ties.
    best = _keys(values, ids).topk(top_k, dim=-1).indices
    return values.gather(-1, best) - totals.logsumexp(dim=0), ids.gather(-1, best).long()


def _keys(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """int64 that orders by value, then by descending token; `values` float32, `ids` below 2**31."""
    bits = (values + 0.0).view(torch.int32)  # -0.0 becomes 0.0
    # Of two negative floats the one with the larger bits is the smaller.
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (ordered.long() << TOKEN_BITS) - ids


def agreed(tokens: torch.Tensor, group) -> torch.Tensor:
    """Rank 0's tokens, on every rank; `tokens` is overwritten and must be contiguous."""
    return group.broadcast(tokens, src=0)


def check_ranks(worker) -> None:
    """Every rank must run the same tree with the same patches, and capture the same graphs.

    Ranks of one server may be started on several machines, each with an environment of its own.

    Raises:
        StartRefused: naming the setting and what each rank has.
    """
    group = worker.tp_group
    if group.world_size == 1:
        return
    mine = {
        **asdict(worker.settings),
        "patch series": installed_series(),
        "captured tiers": {name: _captured(engine.graphs) for name, engine in worker.tiers.by_name.items()},
        "captured drafter width": _captured(worker.draft_model_runner.decode_cuda_graph_runner),
    }
    everyone = group.all_gather_object(mine)
    for name in mine:
        found = [str(theirs[name]) for theirs in everyone]
        if len(set(found)) > 1:
            raise StartRefused(f"the ranks differ in {name} ({', '.join(found)}): start all of them alike")


def _captured(graphs) -> int | None:
    """Tokens per request of captured graphs, None where none were captured."""
    return getattr(graphs, "captured_req_width", None)
