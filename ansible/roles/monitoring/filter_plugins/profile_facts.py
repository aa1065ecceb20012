"""What the alerts need to know of the tuned profiles (bench/profile.py) of a host's instances."""

from __future__ import annotations

from pathlib import Path

import yaml


def profile_facts(instances: list[dict], kit_root: str) -> dict:
    """Instance to `expires` (date), `chain_tokens_per_s` (None where no chain was measured) and `concurrency`.

    Instances without a profile are left out. One that cannot be read was refused when the inventory was resolved.
    """
    return {row["name"]: _facts(row, Path(kit_root)) for row in instances if row.get("profile")}


def _facts(instance: dict, kit_root: Path) -> dict:
    profile = yaml.safe_load((kit_root / instance["profile"]).read_text(encoding="utf-8"))
    workload = profile["workloads"][instance["workload"]]
    # The last round that measured it is the one with the most samples.
    chains = [row for part in workload["rounds"] for arm, row in part["arms"].items() if arm.split(":")[0] == "chain"]
    return {
        "expires": str(profile["expires"]),
        "chain_tokens_per_s": chains[-1]["tokens_per_s"] if chains else None,
        "concurrency": workload["concurrency"],
    }


class FilterModule:
    def filters(self) -> dict:
        return {"profile_facts": profile_facts}
