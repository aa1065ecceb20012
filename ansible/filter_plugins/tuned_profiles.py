"""Settings out of tuned profiles, which the benchmarks write, for the instances that name one."""

import datetime
import json
import sys
from pathlib import Path

ENGINE_SETTINGS = ("algorithm", "budget", "tiers", "top_k", "block_size", "draft_window", "page_size")
KIT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(KIT), str(KIT / "patches")]

from sglang_ddtree.selfcheck import MANIFESTS, series_hash  # noqa: E402

from bench import profile  # noqa: E402
from bench.errors import BenchError  # noqa: E402


def resolve_instances(instances: list[dict], defaults: dict, overrides: dict) -> list[dict]:
    """Each instance with the defaults filled in, and over those what its `workload` of its `profile` was tuned to.

    What the instance says itself comes before both. overrides: an instance's whole engine settings, by its name, in
    place of its own and its profile's. Raises BenchError for a profile that cannot be used.
    """
    return [dict(defaults) | _own(dict(instance), overrides) for instance in instances]


def profile_warnings(instance: dict, card: str | None = None) -> list[str]:
    """Why an instance's profile should not be trusted today, one sentence each; empty without a profile.

    card: name of the host's GPU, None where it is not known.
    """
    if "profile" not in instance:
        return []
    manifest = json.loads((MANIFESTS / f"{instance['sglang']}.json").read_text(encoding="utf-8"))
    here = profile.Here(card=card, sglang=instance["sglang"], patches=series_hash(manifest))
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return [f"instance {instance['name']}: {why}" for why in profile.warnings(_load(instance), here, today)]


def _own(instance: dict, overrides: dict) -> dict:
    if instance.get("name") not in overrides:
        return _tuned(instance) | instance
    dropped = (*ENGINE_SETTINGS, "profile", "workload")
    return {key: value for key, value in instance.items() if key not in dropped} | overrides[instance["name"]]


def profile_record(instance: dict) -> dict:
    """What a deployment record keeps of an instance's profile; empty without one."""
    if "profile" not in instance:
        return {}
    found = _load(instance)
    return {key: str(found[key]) for key in ("measured", "expires")} | {"workload": instance["workload"]}


def _tuned(instance: dict) -> dict:
    if "profile" not in instance and "workload" not in instance:
        return {}
    for key, other in (("profile", "workload"), ("workload", "profile")):
        if key not in instance:
            raise BenchError(f"instance {instance.get('name')} has {other} and no {key}: set both, or leave both out")
    try:
        return profile.settings_for(_load(instance), instance["workload"])
    except BenchError as error:
        raise BenchError(f"instance {instance.get('name')}: {error}") from None


def _load(instance: dict) -> dict:
    try:
        return profile.load(KIT / instance["profile"])
    except BenchError as error:
        raise BenchError(f"instance {instance.get('name')}: {error}") from None


class FilterModule:
    def filters(self) -> dict:
        return {f.__name__: f for f in (resolve_instances, profile_warnings, profile_record)}
