"""Reads the text format of `/metrics`: no more than the probes need."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


class Snapshot:
    """All samples of one scrape."""

    def __init__(self, text: str):
        found = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
        self._samples = [
            Sample(match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"]))
            for match in found
            if match
        ]

    def values(self, name: str, **label_prefixes: str) -> list[float]:
        """Values of every series of `name` whose labels start with the given prefixes."""
        return [
            sample.value
            for sample in self._samples
            if sample.name == name
            and all(sample.labels.get(key, "").startswith(prefix) for key, prefix in label_prefixes.items())
        ]

    def total(self, name: str, **label_prefixes: str) -> float:
        """Sum over the series; 0 for a counter that has not counted yet, for it has no series then."""
        return sum(self.values(name, **label_prefixes))
