"""Whether a model pair fits into the memory of its GPUs."""

GIB = 1024**3


def memory_refusals(instances: list[dict], matrix: dict, pairs: list[dict], gpu_gib: float) -> list[str]:
    """Reasons why instances do not fit; empty when they do.

    gpu_gib: memory of the smallest GPU they may get. The server gives the share `mem_fraction` of it to weights and KV
    cache; logits, graphs and the rest must fit into what is left.
    """
    by_name = {pair["name"]: pair for pair in pairs if "cuda" in pair["engine"]}
    return [
        reason
        for instance in instances
        if instance["pair"] in by_name
        for reason in _reasons(instance, matrix, by_name[instance["pair"]], gpu_gib)
    ]


def _reasons(instance: dict, matrix: dict, pair: dict, gpu_gib: float) -> list[str]:
    known = matrix["memory"]["pairs"].get(pair["name"])
    if known is None:
        return [
            f"instance {instance['name']}: nothing is known about the memory that model pair {pair['name']} needs: "
            f"add it to memory.pairs in ansible/compatibility.yml"
        ]
    settings = pair["engine"]["cuda"] | instance
    held = _weights_gib(settings, pair) + _kv_gib(settings, known, matrix["heads"].get(pair["name"]))
    rest = _logits_gib(settings, known) + matrix["memory"]["overhead_gib"]
    share = float(settings["mem_fraction"])
    lines = []
    if held + rest > gpu_gib:
        lines = [
            f"needs {held:.1f} GiB for weights and KV cache and {rest:.1f} GiB for logits and graphs, a GPU has "
            f"{gpu_gib:.1f} GiB: no mem_fraction fits; lower max_running_requests, then max_total_tokens, or take a "
            f"smaller pair or more GPUs"
        ]
    elif held > share * gpu_gib:
        lines = [
            f"needs {held:.1f} GiB for weights and KV cache, mem_fraction {share} of {gpu_gib:.1f} GiB gives "
            f"{share * gpu_gib:.1f}: set mem_fraction to at least {held / gpu_gib + 0.005:.2f}, or lower "
            f"max_total_tokens"
        ]
    elif rest > (1 - share) * gpu_gib:
        lines = [
            f"needs {rest:.1f} GiB for logits and graphs, mem_fraction {share} leaves {(1 - share) * gpu_gib:.1f}: "
            f"lower max_running_requests or budget, or set mem_fraction to at most {1 - rest / gpu_gib - 0.005:.2f}"
        ]
    return [f"instance {instance['name']}: {line}" for line in lines]


def _weights_gib(settings: dict, pair: dict) -> float:
    """The target is split over all ranks; the drafter is counted whole, as each rank may hold it."""
    ranks = int(settings["tp"]) * int(settings["pp"])
    drafter = 0 if settings["algorithm"] == "ar" else pair["drafter"]["bytes"]
    return (pair["target"]["bytes"] / ranks + drafter) / GIB


def _kv_gib(settings: dict, known: dict, heads: dict | None) -> float:
    """Ranks beyond the key-value heads hold copies; with data-parallel attention a group serves its own requests."""
    split = int(settings["tp"]) // (int(settings["dp"]) if settings["dp_attention"] else 1)
    parts = min(split, heads["key_value"]) if heads else split
    tokens = int(settings["max_total_tokens"])
    return tokens * known["kv_bytes_per_token"] / (parts * int(settings["pp"])) / GIB


def _logits_gib(settings: dict, known: dict) -> float:
    """Every request has one float32 row per verified node: budget + 1 for a tree, the block for a chain."""
    single = settings["budget"] if settings["algorithm"] == "tree" else settings["algorithm"]
    ways = settings["tiers"].values() if "tiers" in settings else [single]
    width = max({"chain": int(settings["block_size"]), "ar": 1}.get(way) or int(way) + 1 for way in ways)
    return int(settings["max_running_requests"]) * width * known["vocab_size"] * 4 / GIB


class FilterModule:
    def filters(self) -> dict:
        return {"memory_refusals": memory_refusals}
