"""Argument checks of the public operations; none reads a tensor's contents."""

from __future__ import annotations

from collections.abc import Sequence

import torch

MAX_BUDGET = 255
MAX_PACKED = 255  # the builder packs a depth and a rank into 8 bits each


def check_contiguous(**tensors: torch.Tensor) -> None:
    """Raise ValueError if a tensor is not contiguous: the kernels index without strides."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            layout = f"shape {tuple(tensor.shape)}, strides {tensor.stride()}"
            raise ValueError(f"{name} is not contiguous ({layout}): pass {name}.contiguous()")


def check_draft(log_probs: torch.Tensor, token_ids: torch.Tensor, budget: int) -> None:
    """Raise ValueError if the drafter's table or the budget is not what the builder supports."""
    if not 1 <= budget <= MAX_BUDGET:
        raise ValueError(f"the tree budget is {budget}: set it to 1..{MAX_BUDGET}")
    if log_probs.dim() != 3 or token_ids.shape != log_probs.shape:
        shapes = f"{tuple(log_probs.shape)} and {tuple(token_ids.shape)}"
        raise ValueError(f"log_probs and token_ids have shapes {shapes}: pass [requests, depths, top-k]")
    _, depths, topk = log_probs.shape
    if not (1 <= depths <= MAX_PACKED and 1 <= topk <= MAX_PACKED):
        raise ValueError(
            f"the draft has {depths} depths with top-k {topk}: "
            f"set a block size of 2..{MAX_PACKED + 1} and a top-k of 1..{MAX_PACKED}"
        )
    if log_probs.dtype != torch.float32 or token_ids.dtype != torch.int64:
        dtypes = f"{log_probs.dtype} and {token_ids.dtype}"
        raise ValueError(f"log_probs and token_ids are {dtypes}: pass float32 and int64")


def check_mask(mask: torch.Tensor, mask_indptr: torch.Tensor, ancestors: torch.Tensor) -> None:
    """Raise ValueError if the mask is not flat bytes, or has fewer offsets than there are requests."""
    for name, tensor in (("mask", mask), ("ancestors", ancestors)):
        if tensor.dtype not in (torch.bool, torch.uint8):
            raise ValueError(f"{name} is {tensor.dtype}: pass bool or uint8")
    if mask.dim() != 1 or mask_indptr.shape[0] < ancestors.shape[0]:
        shapes = f"{tuple(mask.shape)} with {mask_indptr.shape[0]} offsets for {ancestors.shape[0]} requests"
        raise ValueError(f"the mask has shape {shapes}: pass a flat mask with one offset for each request")


def check_buffers(buffers: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if there is no KV buffer, or one whose rows the mover cannot address."""
    if not buffers:
        raise ValueError("there is no KV buffer to move rows in: pass at least one")
    for number, buffer in enumerate(buffers):
        if buffer.device != buffers[0].device:
            devices = f"on {buffer.device} and buffer 0 on {buffers[0].device}"
            raise ValueError(f"KV buffer {number} is {devices}: make one mover for each device")
        if not buffer[:1].is_contiguous():
            layout = f"shape {tuple(buffer.shape)} and strides {buffer.stride()}"
            raise ValueError(f"KV buffer {number} has {layout}: pass [slots, ...] with contiguous rows")


def check_slots(slots: torch.Tensor) -> None:
    """Raise ValueError if a request's slots are not adjacent; the requests' rows may be apart."""
    if slots.dim() != 2 or slots.dtype != torch.int64 or slots.stride(1) != 1:
        layout = f"{slots.dtype}, shape {tuple(slots.shape)}, strides {slots.stride()}"
        raise ValueError(f"slots is {layout}: pass int64 [requests, nodes] with adjacent nodes")
