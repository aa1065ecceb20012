"""Penalties of every node of a tree, counted over the output before the step and over the node's own path.

Without speculation a token is penalised for all output before it. At a node that is what the request committed
in earlier steps and the tokens on the way from the root to the node, so the same token is chosen.

The counts are those of SGLang's penalizers, which the scheduler filters and merges with the batch. Nothing here
waits for the device.
"""

from dataclasses import dataclass

import torch
from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.penaltylib.repetition_penalty import apply_scaling_penalties

from sglang_ddtree.ops import Tree


@dataclass(frozen=True)
class Penalties:
    """State of a batch's penalizers, each None where no request uses it.

    The strengths `frequency`, `presence`, `repetition` float32 [b, 1] and `min_new_tokens` int32 [b, 1]; the
    accumulated `frequencies`, `presences`, `repetitions` float32 [b, V]; the output `length` int32 [b, 1]; and
    `stop_tokens` float32 [b, V], -inf at the tokens that may not come before `min_new_tokens`.
    """

    frequency: torch.Tensor | None = None
    frequencies: torch.Tensor | None = None
    presence: torch.Tensor | None = None
    presences: torch.Tensor | None = None
    repetition: torch.Tensor | None = None
    repetitions: torch.Tensor | None = None
    min_new_tokens: torch.Tensor | None = None
    stop_tokens: torch.Tensor | None = None
    length: torch.Tensor | None = None

    @classmethod
    def of(cls, orchestrator) -> "Penalties":
        """The tensors (not copies) of a `BatchedPenalizerOrchestrator`."""
        found = {}
        for kind, names in _TENSORS.items():
            penalizer = orchestrator.penalizers[kind]
            if penalizer.is_prepared():
                found |= {ours: getattr(penalizer, theirs) for ours, theirs in names.items()}
        return cls(**found)

    def count(self, tokens: torch.Tensor, counts: torch.Tensor) -> None:
        """Count committed tokens, in place.

        Args:
            tokens: int64 [b, n].
            counts: int32 [b], how many of a row count, from its start; at least 1.
        """
        counted = torch.arange(tokens.shape[1], device=tokens.device) < counts[:, None]
        # What does not count repeats the first token: to set a presence twice changes nothing.
        present = torch.where(counted, tokens, tokens[:, :1])
        if self.frequency is not None:
            self.frequencies.scatter_add_(1, tokens, self.frequency * counted)
        if self.presence is not None:
            self.presences.scatter_(1, present, self.presence.expand_as(present))
        if self.repetition is not None:
            self.repetitions.scatter_(1, present, self.repetition.expand_as(present))
        if self.length is not None:
            self.length.add_(counts[:, None])

    def apply(self, logits: torch.Tensor, tree: Tree, depth: int) -> None:
        """Penalise the logits of every node, in place; the root must have been counted.

        Args:
            logits: [b, W, V].
            tree: of the same requests.
            depth: L, which no node's depth exceeds.
        """
        path, drafted = path_tokens(tree, depth)
        if self.frequency is not None:
            logits.sub_(self.frequencies[:, None])
            logits.scatter_add_(2, path, (-self.frequency[:, None] * drafted).to(logits.dtype))
        if self.presence is not None:
            logits.sub_(self.presences[:, None])
            missing = self.presence[:, None] - _at(self.presences, path)
            logits.scatter_add_(2, path, (-missing * _first_of_each(path, drafted)).to(logits.dtype))
        if self.min_new_tokens is not None:
            early = self.length + tree.depth < self.min_new_tokens
            logits.add_(torch.where(early[..., None], self.stop_tokens[:, None], 0.0))
        if self.repetition is not None:
            plain = logits.gather(2, path)
            apply_scaling_penalties(logits, self.repetitions[:, None])
            strength = torch.where(drafted, self.repetition[:, None], _at(self.repetitions, path))
            scaled = torch.where(plain < 0, plain * strength, plain / strength)
            logits.scatter_(2, path, scaled.to(logits.dtype))


_TENSORS = {
    penaltylib.BatchedFrequencyPenalizer: {
        "frequency": "frequency_penalties",
        "frequencies": "cumulated_frequency_penalties",
    },
    penaltylib.BatchedPresencePenalizer: {
        "presence": "presence_penalties",
        "presences": "cumulated_presence_penalties",
    },
    penaltylib.BatchedRepetitionPenalizer: {
        "repetition": "repetition_penalties",
        "repetitions": "cumulated_repetition_penalties",
    },
    penaltylib.BatchedMinNewTokensPenalizer: {
        "min_new_tokens": "min_new_tokens",
        "stop_tokens": "stop_token_penalties",
        "length": "len_output_tokens",
    },
}


def path_tokens(tree: Tree, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens on the way from each node up to the root, without the root's.

    Returns:
        tokens: int64 [b, W, L], the node's own first; the root's past the end of the way.
        drafted: bool [b, W, L], false past the end.
    """
    parents = tree.parent.long()
    node = torch.arange(parents.shape[1], device=parents.device).expand_as(parents)
    tokens, drafted = [], []
    for _ in range(depth):
        above = parents.gather(1, node)
        tokens.append(tree.token.gather(1, node))
        drafted.append(above >= 0)
        node = above.clamp(min=0)
    return torch.stack(tokens, dim=2), torch.stack(drafted, dim=2)


def _first_of_each(path: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
    """Of equal drafted tokens on a way [b, W, L] only the first."""
    same = (path[..., :, None] == path[..., None, :]) & drafted[..., None, :]
    return drafted & ~same.tril(-1).any(dim=-1)


def _at(table: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """Entries of a table [b, V] at the tokens [b, W, L] of each request."""
    return table[:, None].expand(-1, path.shape[1], -1).gather(2, path)
