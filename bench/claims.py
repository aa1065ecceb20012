"""What a run's cells say about each other: who is faster, and who may be chosen at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench import quality
from bench.arms import parse_arms
from bench.stats import claim
from bench.store import Cell

BASELINE = "ar"


@dataclass(frozen=True)
class Standing:
    """One arm at one point. over: claims over other arms that took turns with it, by their names.

    quality: "same", "worse", "unknown" beside the baseline, or "unmeasured". answers_equal: of the timed answers, how
    many are the baseline's token by token, as (equal, all); None without a baseline.
    """

    arm: str
    tokens_per_s: float
    interval: list[float] | None
    over: dict[str, dict]
    quality: str
    why: str
    answers_equal: tuple[int, int] | None

    @property
    def eligible(self) -> bool:
        return self.quality == "same"


def standings(cells: Mapping[Cell, dict], context: int, concurrency: int) -> dict[str, Standing]:
    """All arms at one point, by name."""
    here = {
        cell.arm: found for cell, found in cells.items() if (cell.context, cell.concurrency) == (context, concurrency)
    }
    return {name: _standing(name, found, here) for name, found in here.items()}


def points(cells: Mapping[Cell, dict]) -> list[tuple[int, int]]:
    """Every (context, concurrency) with a cell, in order."""
    return sorted({(cell.context, cell.concurrency) for cell in cells})


def _standing(name: str, found: dict, here: Mapping[str, dict]) -> Standing:
    base = here.get(BASELINE)
    judged, why = _quality(name, found, base)
    return Standing(
        arm=name,
        tokens_per_s=found["median"]["tokens_per_s"],
        interval=found["interval"]["tokens_per_s"],
        over={other: _claim(found, here[other]) for other in _compared(name, here) if _took_turns(found, here[other])},
        quality=judged,
        why=why,
        answers_equal=_equal(found["answers"], base["answers"]) if base else None,
    )


def _compared(name: str, here: Mapping[str, dict]) -> list[str]:
    plain = [other for other in here if parse_arms(other)[0].kind in ("ar", "chain")]
    return [other for other in plain if other != name]


def _took_turns(one: dict, other: dict) -> bool:
    """Whether both were measured in one block: only then is a sample of one a pair with a sample of the other."""
    return one["block"] == other["block"]


def _claim(ours: dict, base: dict) -> dict:
    speeds = [[row["tokens_per_s"] for row in found["samples"]] for found in (ours, base)]
    return claim(*speeds, seed=ours["run"]["seed"])


def _quality(name: str, found: dict, base: dict | None) -> tuple[str, str]:
    if name == BASELINE and found["quality"]:
        return "same", "it is the baseline"
    if not base or not found["quality"] or not base["quality"]:
        return "unmeasured", f"no quality of {name} beside {BASELINE} at this point"
    return quality.verdict(found["quality"], base["quality"], found["dtype"])


def _equal(ours: list[list[int]], base: list[list[int]]) -> tuple[int, int]:
    return sum(a == b for a, b in zip(ours, base, strict=True)), len(ours)
