"""What the smoke tests are held against on a GPU: servers that they must pass, and broken ones that they must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.engine.broken_engines import BROKEN, BROKEN_DRAFTERS, DRAFTER_CLASS, SHAPE
from tests.gpu.engine_cases import Case

CHAIN = {"budget": 7, "top_k": 1}
#: The answers of the embedded pair are known in no other.
DTYPE = "float32"


@dataclass(frozen=True)
class Broken:
    """A server with one fault, and the probe that must fail, whatever else does.

    drafter: makes a wrong drafter out of (the right one, a new folder).
    """

    case: Case
    wanted: str
    smoke_class: str = "quick"
    drafter: Callable[[Path, Path], Path] | None = None


def arms() -> dict[str, Case]:
    """Algorithm to server: what a first deployment records, in the order in which it is recorded."""
    return {
        "ar": Case(f"ar-{DTYPE}", dtype=DTYPE),
        "chain": Case(f"chain-{DTYPE}", dtype=DTYPE, **CHAIN),
        "tree": Case(f"tree-{DTYPE}", dtype=DTYPE, **SHAPE),
    }


FAULTS = (
    *(Broken(Case(mode.replace(":", "-"), probe=mode, **SHAPE), wanted) for mode, wanted in BROKEN.items()),
    *(Broken(Case(maker.__name__, **SHAPE), wanted, DRAFTER_CLASS, maker) for maker, wanted in BROKEN_DRAFTERS.items()),
)
