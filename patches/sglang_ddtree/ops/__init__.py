"""Tree operations of the engine, dispatched on the device of the tensors.

CUDA tensors run the Triton kernels of :mod:`.triton`, all others the plain torch of :mod:`.reference`.

Notation: ``b`` requests, block size ``D`` (root included), ``L = D - 1`` depths, top-k ``K`` per depth,
budget ``B`` nodes without the root, width ``W = B + 1``.  On CUDA no function synchronises with the host, and
none allocates when its ``out=`` is given, so each can be captured in a CUDA graph after one call outside it
(which compiles the kernel).  The batch size never causes a compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import torch

from .checks import check_buffers, check_contiguous, check_draft, check_mask, check_slots
from .types import Accepted, Tree

__all__ = ["Accepted", "KVMover", "Tree", "accept", "build_tree", "finalize", "move_kv", "write_mask_tails"]


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_ids: torch.Tensor,
    budget: int,
    out: Tree | None = None,
) -> Tree:
    """Grow the best-first draft tree of each request under its drafter's per-depth marginals.

    The root is node 0.  Each of the ``budget`` steps links the candidate with the highest cumulative
    log-probability: per linked node its first child not yet linked.  Of equal candidates the one below the
    older parent wins.  Nodes are in the order of linking, so a parent precedes its children and the tree of a
    smaller budget is a prefix of the tree of a larger one.  When no candidate above -inf is left, the
    remaining nodes are pads (token of the root, parent -1, depth 0, score -inf).  A request whose table holds
    a NaN or +inf gets pads only.

    Args:
        log_probs: contiguous float32 ``[b, L, K]``, descending in ``K``; ``L, K <= 255``
        token_ids: contiguous int64 ``[b, L, K]``, distinct in ``K``
        root_ids: int64 ``[b]``
        budget: ``B``, 1 to 255
        out: the tree to write, contiguous, ``W = budget + 1`` wide

    Raises:
        ValueError: if a shape, dtype, layout or the budget is out of the above.
    """
    check_draft(log_probs, token_ids, budget)
    check_contiguous(log_probs=log_probs, token_ids=token_ids, root_ids=root_ids)
    return _module("build", log_probs).build_tree(log_probs, token_ids, root_ids, budget, out)


def finalize(
    tree: Tree,
    seq_lens: torch.Tensor,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and ancestor rows of each tree.

    Args:
        tree: contiguous, as :func:`build_tree` returns it; only ``parent`` and ``depth`` are read
        seq_lens: integer ``[b]``, committed tokens of each request, in tokens
        out: ``(positions, ancestors)`` to write, contiguous; ``ancestors`` may be bool or uint8

    Returns:
        positions: int64 ``[b, W]``, ``seq_lens + depth``
        ancestors: bool ``[b, W, W]``, ``[r, i, j]`` is true where node ``j`` is node ``i`` or above it; a pad
            sees itself only

    Raises:
        ValueError: if a tensor is not contiguous.
    """
    check_contiguous(parent=tree.parent, depth=tree.depth, seq_lens=seq_lens)
    return _module("finalize", tree.parent).finalize(tree, seq_lens, out)


def write_mask_tails(
    mask: torch.Tensor,
    mask_indptr: torch.Tensor,
    seq_lens: torch.Tensor,
    ancestors: torch.Tensor,
    fill_prefix: bool = False,
) -> None:
    """Write the ancestor rows into the flat verify mask of the attention backend, in place.

    Row ``i`` of request ``r`` is ``mask[p : p + seq_lens[r] + W]`` with
    ``p = mask_indptr[r] + i * (seq_lens[r] + W)``; its last ``W`` entries become ``ancestors[r, i]``.

    Args:
        mask: flat contiguous bool or uint8, long enough for every request.  The length cannot be checked on
            CUDA without a synchronisation: the caller must have sized it.
        mask_indptr: integer ``[b + 1]``, the offset of each request; a longer one is allowed
        seq_lens: integer ``[b]``, in tokens
        ancestors: contiguous bool or uint8 ``[b, W, W]``
        fill_prefix: also set the entries before the tail to one, for a kernel that reads them

    Raises:
        ValueError: if a dtype, shape or layout is out of the above.
        IndexError: on CPU, if the mask is too short.
    """
    check_mask(mask, mask_indptr, ancestors)
    check_contiguous(mask=mask, mask_indptr=mask_indptr, seq_lens=seq_lens, ancestors=ancestors)
    _module("mask", ancestors).write_mask_tails(mask, mask_indptr, seq_lens, ancestors, fill_prefix)


def accept(
    tree: Tree,
    target_tokens: torch.Tensor,
    seq_lens: torch.Tensor,
    block_size: int,
    out: Accepted | None = None,
) -> Accepted:
    """Follow the target's choices from the root of each tree as far as the tree holds them.

    From the current node the walk goes to the child whose token the target chose there (to the lowest
    numbered one, should siblings share a token) and ends where there is none, at depth ``L`` at the latest.

    Args:
        tree: contiguous, as :func:`build_tree` returns it; only ``token`` and ``parent`` are read
        target_tokens: contiguous integer ``[b, W]``, the target's choice after each node
        seq_lens: integer ``[b]``, committed tokens of each request before this step, in tokens
        block_size: ``D``
        out: the result to write, contiguous

    Raises:
        ValueError: if a tensor is not contiguous.
    """
    check_contiguous(token=tree.token, parent=tree.parent, target_tokens=target_tokens, seq_lens=seq_lens)
    return _module("accept", tree.parent).accept(tree, target_tokens, seq_lens, block_size, out)


class KVMover:
    """Moves the KV rows of accepted nodes to the slots that a chain would have used, in place.

    For ``k = 1 .. commit_lens[r] - 1`` ascending, row ``slots[r, k]`` becomes row
    ``slots[r, accepted_index[r, k]]`` in every buffer.  In place is safe because the accepted index is
    strictly increasing and at least ``k``: no row is read after it was written.

    The buffers' addresses are read once, here.  A call on CUDA is one kernel launch for all buffers.

    Args:
        buffers: tensors ``[slots, ...]`` of one device, of any dtype and row size, each row contiguous

    Raises:
        ValueError: if there is no buffer, or one has rows that are not contiguous or another device.
    """

    def __init__(self, buffers: Sequence[torch.Tensor]):
        buffers = [buffer if buffer.dim() > 1 else buffer[:, None] for buffer in buffers]
        check_buffers(buffers)
        self._move = _module("move", buffers[0]).KVMover(buffers)

    def __call__(self, slots: torch.Tensor, accepted_index: torch.Tensor, commit_lens: torch.Tensor) -> None:
        """Move the rows of one step.

        Args:
            slots: int64 ``[b, W]``, the slot of each node; rows may be strided, and no slot of a moved row
                occurs twice
            accepted_index: contiguous int32 ``[b, D]``, as :func:`accept` returns it
            commit_lens: int32 ``[b]``, as :func:`accept` returns it

        Raises:
            ValueError: if a tensor's layout is out of the above.
        """
        check_slots(slots)
        check_contiguous(accepted_index=accepted_index, commit_lens=commit_lens)
        self._move(slots, accepted_index, commit_lens)


def move_kv(
    buffers: Sequence[torch.Tensor],
    slots: torch.Tensor,
    accepted_index: torch.Tensor,
    commit_lens: torch.Tensor,
) -> None:
    """One step of a :class:`KVMover` made for this call; a server keeps the mover instead."""
    KVMover(buffers)(slots, accepted_index, commit_lens)


def _module(name: str, tensor: torch.Tensor) -> ModuleType:
    # Imported on first use: a machine without a GPU need not have Triton.
    return import_module(f"{__name__}.{'triton' if tensor.is_cuda else 'reference'}.{name}")
