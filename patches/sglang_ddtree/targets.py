"""Which targets a tree can be verified on, and over how many ranks, decided from their config alone."""

# Of Qwen3-Next, Nemotron-H, Falcon-H1 and Mamba, Jamba, Kimi-Linear, LFM2 and RecurrentGemma.
STATEFUL_KEYS = (
    *("linear_num_value_heads", "full_attention_interval", "mamba_num_heads", "hybrid_override_pattern"),
    *("mamba_d_state", "state_size", "attn_layer_period", "linear_attn_config", "conv_L_cache", "lru_width"),
)
RECURRENT = "it has recurrent (hybrid) layers, whose state siblings of a tree would overwrite"
SLIDING = "it uses sliding-window attention, which measures distance by node order and not by depth"
STATEFUL_KINDS = ("linear", "mamba", "recurrent", "conv", "gdn", "kda")


def unsupported(config: dict) -> str | None:
    """Reason why a target cannot verify a tree, or None.

    Args:
        config: the target's `config.json` as a dict; a nested `text_config` is looked into.
    """
    text = config.get("text_config") or config
    kinds = set(text.get("layer_types") or ())
    stateful = [key for key in STATEFUL_KEYS if text.get(key)]
    if stateful or any(name in kind for kind in kinds for name in STATEFUL_KINDS):
        return RECURRENT
    if any("sliding" in kind or "chunked" in kind for kind in kinds) or _slides(text):
        return SLIDING
    return None


def _slides(text: dict) -> bool:
    return bool(text.get("sliding_window")) and text.get("use_sliding_window", True) and not text.get("layer_types")


def tensor_parallel_sizes(config: dict) -> list[int]:
    """How many ranks can share a model's attention heads, ascending; empty where its config does not say.

    Key-value heads are split, or each is held by as many ranks as share it; MLA has one for all.
    """
    text = config.get("text_config") or config
    heads = text.get("num_attention_heads")
    if not heads:
        return []
    shared = 1 if text.get("kv_lora_rank") else text.get("num_key_value_heads") or heads
    sizes = (size for size in range(1, heads + 1) if heads % size == 0)
    return [size for size in sizes if shared % size == 0 or size % shared == 0]
