"""Whether the engine can do what an instance asks of it, judged from the inventory alone."""

import shlex


def engine_refusals(instances: list[dict], generation: str, matrix: dict, pairs: list[dict]) -> list[str]:
    """Reasons why instances cannot run; empty when they can.

    generation: the host's group. matrix: ansible/compatibility.yml. pairs: the model pairs' files, parsed.
    """
    by_name = {pair["name"]: pair for pair in pairs}
    return [
        reason for instance in instances for reason in _reasons(instance, generation, matrix, by_name[instance["pair"]])
    ]


def _reasons(instance: dict, generation: str, matrix: dict, pair: dict) -> list[str]:
    if "cuda" not in pair["engine"]:
        classes = ", ".join(pair["engine"])
        return [_of(instance, f"model pair {pair['name']} is validated for {classes} only: choose another pair")]
    settings = pair["engine"]["cuda"] | instance
    reasons = [
        *_backend(settings, generation, matrix),
        *_page_size(settings, matrix),
        *_layout(settings, matrix),
        *_tree_shape(settings, matrix),
        *_arguments(settings, matrix),
        *_access(settings),
        *_shared_memory(settings, matrix),
    ]
    return [_of(instance, reason) for reason in reasons]


def _of(instance: dict, reason: str) -> str:
    return f"instance {instance['name']}: {reason}"


def _backend(settings: dict, generation: str, matrix: dict) -> list[str]:
    chosen, algorithm = settings["attention_backend"], settings["algorithm"]
    on_card = matrix["generations"][generation]["attention_backends"]
    verifies = matrix["algorithms"][algorithm]["attention_backends"]
    both = " or ".join(backend for backend in on_card if backend in verifies)
    if chosen not in on_card:
        return [f"attention_backend {chosen} does not run on {generation}: set it to {both}"]
    if chosen not in verifies:
        return [f"attention_backend {chosen} cannot verify the drafts of algorithm {algorithm}: set it to {both}"]
    return []


def _page_size(settings: dict, matrix: dict) -> list[str]:
    allowed = matrix["algorithms"][settings["algorithm"]]["page_sizes"]
    narrower = matrix["page_sizes"].get(settings["attention_backend"], allowed)
    both = [size for size in allowed if size in narrower]
    if int(settings["page_size"]) in both:
        return []
    return [
        f"page_size {settings['page_size']} does not go with algorithm {settings['algorithm']} on "
        f"{settings['attention_backend']}: set it to {_either(both)}"
    ]


def _layout(settings: dict, matrix: dict) -> list[str]:
    algorithm = settings["algorithm"]
    allowed = matrix["algorithms"][algorithm]
    reasons = []
    for key in ("tp", "pp", "ep", "dp", "dp_attention"):
        value = settings[key] if key == "dp_attention" else int(settings[key])
        if value in allowed[key]:
            continue
        why = matrix["layout_reasons"].get(key)
        because = f" ({why})" if why and algorithm != "ar" else ""
        other = "" if algorithm == "ar" else ", or algorithm to ar"
        reasons.append(
            f"{key} {_shown(value)} does not go with algorithm {algorithm}{because}: set {key} to "
            f"{_either(allowed[key])}{other}"
        )
    return reasons or _heads(settings, matrix["heads"].get(settings["pair"]))


def _heads(settings: dict, heads: dict | None) -> list[str]:
    """Ranks that a model's attention heads cannot be shared out to; data-parallel attention splits them less."""
    if heads is None:
        return []
    split = int(settings["tp"]) // (int(settings["dp"]) if settings["dp_attention"] else 1)
    attention, shared = heads["attention"], heads["key_value"]
    fitting = [
        size for size in range(1, attention + 1) if attention % size == 0 and (shared % size == 0 or size % shared == 0)
    ]
    if split in fitting:
        return []
    return [
        f"tp {settings['tp']} does not share out the {attention} attention heads ({shared} for keys and values) of "
        f"pair {settings['pair']}: ranks of one attention can be {_either(fitting)}, more GPUs take pp or dp"
    ]


def _tree_shape(settings: dict, matrix: dict) -> list[str]:
    if settings["algorithm"] == "ar":
        return []
    block_size, reasons = int(settings["block_size"]), []
    if settings["algorithm"] == "tree":
        named = settings["tiers"].values() if "tiers" in settings else [settings["budget"]]
        top_k, budget = int(settings["top_k"]), max((int(n) for n in named if str(n).isdigit()), default=0)
        capacity = min(sum(top_k**depth for depth in range(1, block_size)), matrix["max_budget"])
        if budget > capacity:
            reasons.append(
                f"budget {budget} is more than a tree of top_k {top_k} and block_size {block_size} holds in the "
                f"kernels: set budget to at most {capacity}"
            )
    window = settings.get("draft_window")
    if window is not None and int(window) < block_size:
        reasons.append(f"draft_window {window} is shorter than one block: set it to at least {block_size}")
    return reasons


def _arguments(settings: dict, matrix: dict) -> list[str]:
    try:
        words = shlex.split(settings.get("extra_args", ""))
    except ValueError as error:
        return [f"extra_args cannot be read ({error}): quote it as in a shell"]
    reasons = []
    for flag in (word.split("=", 1)[0] for word in words if word.startswith("--")):
        key = _known(flag, matrix["arguments_with_a_key"])
        refused = _known(flag, dict.fromkeys(matrix["algorithms"][settings["algorithm"]]["refused_arguments"], flag))
        if key:
            reasons.append(f"extra_args has {flag}: take it out and set {key}, which is checked")
        elif refused:
            reasons.append(
                f"extra_args has {flag}, which does not go with algorithm {settings['algorithm']}: take it out"
            )
    return reasons


def _known(flag: str, arguments: dict) -> str | None:
    """The server also understands the beginning of an argument's name."""
    return next((value for name, value in arguments.items() if name.startswith(flag)), None)


def _access(settings: dict) -> list[str]:
    if settings.get("expose") and not settings.get("api_key_file"):
        return ["expose is true without a key: set api_key_file, or leave expose out and put a proxy in front"]
    return []


def _shared_memory(settings: dict, matrix: dict) -> list[str]:
    ranks = int(settings["tp"]) * int(settings["pp"]) * (1 if settings["dp_attention"] else int(settings["dp"]))
    least = ranks * matrix["min_shm_gib_per_gpu"]
    if ranks > 1 and float(settings["shm_gib"]) < least:
        return [
            f"shm_gib {settings['shm_gib']} is too little for the collectives of {ranks} GPUs: set at least {least}"
        ]
    return []


def _either(values: list) -> str:
    return " or ".join(map(_shown, values))


def _shown(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class FilterModule:
    def filters(self) -> dict:
        return {"engine_refusals": engine_refusals}
