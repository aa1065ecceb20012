"""Which GPUs the instances of a host take, judged from the inventory alone."""

import re
from math import prod

UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def layout_refusals(instances: list[dict]) -> list[str]:
    """Reasons why the GPU sets of one host's instances cannot be; empty when they can.

    instances: with their defaults filled in; `gpus` holds indices or UUIDs.
    """
    reasons = [reason for instance in instances for reason in _own_reasons(instance)]
    named = [(instance["name"], str(gpu)) for instance in instances for gpu in instance.get("gpus", [])]
    # An index and a UUID may mean the same card, which nobody can tell before the host is asked.
    if len({gpu.isdigit() for _, gpu in named}) > 1:
        reasons.append(
            "GPUs are named by index here and by UUID there: set gpus of all instances to UUIDs (nvidia-smi -L)"
        )
    owners: dict[str, str] = {}
    for name, gpu in named:
        owner = owners.setdefault(gpu, name)
        if owner != name:
            reasons.append(f"GPU {gpu} is in instances {owner} and {name}: take it out of gpus of one of them")
    return reasons


def _own_reasons(instance: dict) -> list[str]:
    name, gpus = instance["name"], [str(gpu) for gpu in instance.get("gpus", [])]
    if not gpus:
        return [f"instance {name} has no GPU: set gpus to a list of UUIDs (nvidia-smi -L) or indices"]
    reasons = [
        f"instance {name} has {gpu} in gpus: name a GPU by its index, or by its UUID as nvidia-smi -L prints it"
        for gpu in gpus
        if not gpu.isdigit() and not UUID.fullmatch(gpu)
    ]
    if len(set(gpus)) < len(gpus):
        reasons.append(f"instance {name} names a GPU twice in gpus ({', '.join(gpus)}): name each once")
    return reasons + _rank_reasons(instance, len(gpus))


def _rank_reasons(instance: dict, gpus: int) -> list[str]:
    name, (tp, pp, dp, ep) = instance["name"], (int(instance[key]) for key in ("tp", "pp", "dp", "ep"))
    reasons = []
    if instance["dp_attention"] and (dp == 1 or tp % dp):
        return [
            f"instance {name} has dp_attention with dp {dp} and tp {tp}: set dp to a divisor of tp above 1, the groups "
            f"that attention is split into"
        ]
    # Attention's groups are parts of tp; without them each replica has ranks of its own.
    sizes = {"tp": tp, "pp": pp} | ({} if instance["dp_attention"] else {"dp": dp})
    needed = prod(sizes.values())
    # Over several hosts node_refusals counts them.
    if "nodes" not in instance and needed != gpus:
        product = " x ".join(f"{key} {size}" for key, size in sizes.items())
        reasons.append(
            f"instance {name} has {product} = {needed} ranks on {gpus} GPUs: set {', '.join(sizes)} so that their "
            f"product is the number of gpus"
        )
    if ep not in (1, tp):
        reasons.append(f"instance {name} has ep {ep}: set it to 1 or to its tp, {tp}")
    return reasons


class FilterModule:
    def filters(self) -> dict:
        return {"layout_refusals": layout_refusals}
