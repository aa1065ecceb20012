"""Reads what the mode `trees` of the probe wrote: every rank's trees and choices, step by step."""

import json
from dataclasses import dataclass
from pathlib import Path

#: Steps that a rank may be behind when its server is asked for nothing more, or stopped.
BEHIND = 2


@dataclass(frozen=True)
class RankTrees:
    """Steps of all ranks; `first_difference` is the first step at which they part, None where they never do."""

    ranks: list[list]

    @classmethod
    def read(cls, folder: Path) -> "RankTrees":
        files = sorted(folder.glob("rank-*.jsonl"))
        # A line without its end is still being written.
        lines = ([line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")] for file in files)
        return cls([[json.loads(line) for line in each] for each in lines])

    @property
    def steps(self) -> int:
        return min(map(len, self.ranks), default=0)

    @property
    def first_difference(self) -> int | None:
        for number, lines in enumerate(zip(*self.ranks, strict=False)):
            if any(line != lines[0] for line in lines):
                return number
        return None if max(map(len, self.ranks), default=0) - self.steps <= BEHIND else self.steps

    def tokens(self) -> set[int]:
        """Every token of every tree."""
        return {token for step in self.ranks[0] for tree in step[0] for token in tree}
