"""Which targets a tree can be verified on, decided from their config alone."""

STATEFUL_KEYS = ("linear_num_value_heads", "mamba_num_heads", "mamba_d_state", "full_attention_interval")


def unsupported(config: dict) -> str | None:
    """Reason why a target cannot verify a tree, or None.

    Args:
        config: the target's `config.json` as a dict; a nested `text_config` is looked into.
    """
    text = config.get("text_config") or config
    kinds = set(text.get("layer_types") or ())
    stateful = [key for key in STATEFUL_KEYS if text.get(key)]
    if stateful or any("linear" in kind or "mamba" in kind for kind in kinds):
        return "it has recurrent (hybrid) layers, whose state siblings of a tree would overwrite"
    if any("sliding" in kind or "chunked" in kind for kind in kinds) or _slides(text):
        return "it uses sliding-window attention, which measures distance by node order and not by depth"
    return None


def _slides(text: dict) -> bool:
    return bool(text.get("sliding_window")) and text.get("use_sliding_window", True) and not text.get("layer_types")
