"""Which tier of speculation serves a step, by the requests in its batch: a tree of some budget, the chain, or none.

Best-first trees are nested, so one drafter's graph serves every budget and a smaller tree is a prefix of the largest.
The choice comes from a table that was measured on the host (`python -m bench.adaptive_table`):

    {"tiers": {"1": 32, "3": 8, "6": "chain", "9": "ar"}, "top_k": 8, "device": "NVIDIA H200"}

reads: one and two requests verify trees of 32 nodes, three to five of 8, six to eight the drafter's plain chain, more
are decoded without speculation (AR). `top_k` and `device` may be left out, further keys are the table's own record.
"""

from __future__ import annotations

import bisect
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

ENV_TIERS = "SGLANG_DDTREE_TIERS"
CHAIN, AR = "chain", "ar"
CONSERVATIVE = "conservative"
_INLINE = re.compile(r"\w+:\w+(,\w+:\w+)*")
# Small trees while a step waits for memory, nothing once it may be bound by arithmetic.
CONSERVATIVE_TIERS = {1: 8, 3: 4, 5: AR}


class TableError(ValueError):
    """One sentence that names the setting and the fix."""


@dataclass(frozen=True)
class Table:
    """`starts` are batch sizes, ascending from 1, `names` the tier from each on: a budget, "chain" or "ar".

    source: what the table was read from. top_k, device: what it was measured with, None where it says nothing.
    """

    starts: tuple[int, ...]
    names: tuple[int | str, ...]
    source: str
    top_k: int | None = None
    device: str | None = None

    @property
    def measured(self) -> bool:
        return self.source != CONSERVATIVE

    @property
    def largest_budget(self) -> int | None:
        """Nodes of the largest tree, None where the table has none."""
        return max((name for name in self.names if isinstance(name, int)), default=None)

    def name(self, requests: int) -> int | str:
        """The tier of a batch of `requests`, at least 1."""
        return self.names[bisect.bisect_right(self.starts, requests) - 1]

    def __str__(self) -> str:
        ends = [start - 1 for start in self.starts[1:]] + [""]
        return ",".join(f"{s}-{e}:{name}" for s, e, name in zip(self.starts, ends, self.names, strict=True))


@dataclass(frozen=True)
class Tier:
    """One way to run a step. `shape` holds its widths: one node without the drafter for "ar"."""

    name: str
    shape: object

    @property
    def drafts(self) -> bool:
        return self.name != AR

    @property
    def is_tree(self) -> bool:
        return self.name not in (CHAIN, AR)


def read(setting: str, capacity: int) -> Table:
    """The table that a value of SGLANG_DDTREE_TIERS names.

    Args:
        setting: a file, the tiers themselves as in "1:32,3:8,6:chain,9:ar", or "conservative".
        capacity: nodes of the drafter's largest possible tree; caps the conservative budgets only.

    Raises:
        TableError: the file is missing or says something that cannot be served.
    """
    if setting == CONSERVATIVE:
        names = {s: min(n, capacity) if isinstance(n, int) else n for s, n in CONSERVATIVE_TIERS.items()}
        return Table(tuple(names), tuple(names.values()), CONSERVATIVE)
    try:
        found = _inline(setting) if _INLINE.fullmatch(setting) else json.loads(Path(setting).read_text())
        return _table(found, setting)
    except OSError as error:
        reason = f"cannot be read ({error.strerror}): name a readable file, tiers as in 1:8,5:ar, or {CONSERVATIVE}"
    except json.JSONDecodeError as error:
        reason = f"is no JSON ({error}): write it with bench.adaptive_table"
    except TableError as error:
        reason = f"cannot be served: {error}"
    raise TableError(f"{ENV_TIERS}={setting} {reason}")


def _inline(setting: str) -> dict:
    rows = [row.split(":") for row in setting.split(",")]
    return {"tiers": {start: int(name) if name.isdigit() else name for start, name in rows}}


def _table(found, source: str) -> Table:
    if not isinstance(found, dict) or not isinstance(found.get("tiers"), dict) or not found["tiers"]:
        raise TableError('it has no "tiers": write {"tiers": {"1": 8, "5": "ar"}}')
    rows = sorted((_start(key), _name(key, value)) for key, value in found["tiers"].items())
    starts = [start for start, _ in rows]
    if starts[0] != 1:
        raise TableError(f'"tiers" begins at a batch of {starts[0]}: begin it at "1"')
    if len(set(starts)) != len(starts):
        raise TableError('"tiers" names a batch size twice: name each once')
    top_k, device = found.get("top_k"), found.get("device")
    if top_k is not None and (type(top_k) is not int or top_k < 1):
        raise TableError(f'"top_k" is {top_k!r}: use a whole number of at least 1, or leave it out')
    return Table(tuple(starts), tuple(name for _, name in rows), source, top_k, device)


def _start(key: str) -> int:
    if not (key.isascii() and key.isdigit() and int(key) >= 1):
        raise TableError(f'"tiers" has the batch size {key!r}: use whole numbers from "1" on')
    return int(key)


def _name(key: str, value) -> int | str:
    if value in (CHAIN, AR) or (type(value) is int and value >= 1):
        return value
    raise TableError(f'"tiers" has {value!r} from batch size {key} on: use a budget of at least 1, "{CHAIN}" or "{AR}"')


def remarks(table: Table, device: str | None) -> list[str]:
    """What the reader of a server's log must know about its table; `device` is the name of the GPU, None on a CPU."""
    measure = "measure one here with bench.adaptive_table"
    if not table.measured:
        return [f"{ENV_TIERS}={CONSERVATIVE} was not measured and speculates little ({table}): {measure}"]
    if device and table.device != device:
        return [
            f"{ENV_TIERS}={table.source} was measured on {table.device or 'an unnamed device'}: {measure} ({device})"
        ]
    return []


def tier(name: int | str, largest) -> Tier:
    """The tier of a name beside the engine's largest tree, a `Settings`."""
    if name == AR:
        return Tier(AR, replace(largest, budget=0, top_k=1, block_size=1, table=None))
    if name == CHAIN:
        return Tier(CHAIN, replace(largest, budget=largest.depth, top_k=1, table=None))
    return Tier(str(name), replace(largest, budget=name, table=None))


def needed_sizes(sizes: list[int], serves) -> list[int]:
    """Of the sizes to which batches are padded, those to which a batch of the tier is."""
    previous = [0, *sizes[:-1]]
    return [size for below, size in zip(previous, sizes, strict=True) if any(map(serves, range(below + 1, size + 1)))]
