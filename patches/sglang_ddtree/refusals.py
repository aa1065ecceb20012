"""Requests that a tree server does not take, in place of upstream's list for a chain."""


def validate_request(original, req, enable_overlap: bool) -> str | None:
    """AROUND hook of the scheduler's `validate_dflash_request`: why a request is refused, or None."""
    if req.return_hidden_states:
        return "DDTREE returns no hidden states: leave return_hidden_states out, or serve without speculation"
    if req.return_sampling_mask:
        return "DDTREE returns no sampling masks: leave return_sampling_mask out, or serve without speculation"
    return None
