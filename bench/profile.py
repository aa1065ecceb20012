"""A tuned profile: which settings to serve a workload with, on which host class, and until when to believe it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.errors import BenchError

VALID_DAYS = 90
#: What must be the same for the measurements to hold.
HOST_KEYS = ("card", "sglang", "patches", "target", "drafter")
_ACTION = "tune again on this host"


@dataclass(frozen=True)
class Here:
    """The host that a profile is to be used on; None for what is not known, which is not compared.

    card: its name. sglang: version. patches: of the series. target, drafter: fingerprints of the pair.
    """

    card: str | None = None
    sglang: str | None = None
    patches: str | None = None
    target: str | None = None
    drafter: str | None = None


def build(settings: Mapping, evidence: Path, workloads: dict[str, dict], priors: Mapping[str, str]) -> dict:
    """A profile that holds from today on. settings: of the run that is its evidence. priors: arms by workload."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    for name, arm in priors.items():
        kept = arm == workloads[name]["arm"]
        workloads[name]["prior"] = {"arm": arm, "source": "reported by others", "kept": kept}
    host = {key: settings[key] for key in ("card", "driver", "patches", "target", "drafter")}
    return {
        "host": host | {"sglang": settings["versions"]["sglang"]},
        "measured": today.isoformat(),
        "expires": (today + datetime.timedelta(days=VALID_DAYS)).isoformat(),
        "evidence": str(evidence),
        "workloads": workloads,
    }


def write(path: Path, profile: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(profile, sort_keys=False)
    path.write_text(f"---\n# Written by the benchmarks from what they measured.\n{text}", encoding="utf-8")


def load(path: Path) -> dict:
    """Raises BenchError for a file that is no profile."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BenchError(f"the profile {path} cannot be read ({error}): name a file that bench.tune wrote") from None
    missing = [
        key
        for key in ("host", "measured", "expires", "workloads")
        if not isinstance(found, Mapping) or key not in found
    ]
    if missing:
        raise BenchError(f"the profile {path} has no {', '.join(missing)}: name a file that bench.tune wrote")
    return found


def warnings(profile: Mapping, here: Here, today: datetime.date) -> list[str]:
    """Why the profile should not be trusted on this host today, one sentence each; empty when it may be."""
    found = []
    expires = _date(profile["expires"])
    if today > expires:
        found.append(f"the profile expired on {expires}: {_ACTION}")
    for key in HOST_KEYS:
        measured, now = profile["host"].get(key), getattr(here, key)
        if now is not None and measured != now:
            found.append(f"the profile was measured with {key} {measured}, here it is {now}: {_ACTION}")
    return found


def settings_for(profile: Mapping, workload: str) -> dict:
    """Engine settings of a workload. Raises BenchError for one that was not tuned."""
    try:
        return profile["workloads"][workload]["settings"]
    except KeyError:
        known = ", ".join(profile["workloads"])
        raise BenchError(f"the profile has no workload {workload}: use one of {known}, or tune it") from None


def _date(value: datetime.date | str) -> datetime.date:
    return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)
