"""Whether an instance's tiers can be read: what serves a batch from each number of requests on."""


def tier_refusals(instance: dict) -> list[str]:
    """Reasons why the tiers of an instance cannot be served; empty when they can, or when it has none."""
    if "tiers" not in instance:
        return []
    tiers, reasons = instance["tiers"], []
    if instance["algorithm"] != "tree":
        reasons.append(f"tiers go with algorithm tree, not {instance['algorithm']}: take them out or set it to tree")
    if "budget" in instance:
        reasons.append("budget and tiers are both set: take budget out, the tiers name their own")
    if "1" not in map(str, tiers) or not all(_counts(start) for start in tiers):
        starts = ", ".join(map(str, tiers))
        reasons.append(f"tiers begin at {starts}: use numbers of requests at once, 1 among them")
    for start, name in tiers.items():
        if name not in ("chain", "ar") and not _counts(name):
            reasons.append(f"tiers have {name} from {start} on: use a budget of at least 1, chain or ar")
    return [f"instance {instance['name']}: {reason}" for reason in reasons]


def _counts(value) -> bool:
    return str(value).isdigit() and int(value) > 0


class FilterModule:
    def filters(self) -> dict:
        return {"tier_refusals": tier_refusals}
