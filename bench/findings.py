"""What was believed, what is true, and by which measurement: findings.yaml, checked and rendered."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import yaml

from bench.errors import BenchError

FILE = Path(__file__).with_name("findings.yaml")
ROOT = Path(__file__).parents[1]
ORIGINS = ("measured", "reported by others")


@dataclass(frozen=True)
class Finding:
    """evidence: paths in this repository. origin: "measured" here, or "reported by others"."""

    title: str
    believed: str
    fact: str
    measured_by: str
    origin: str
    evidence: tuple[str, ...] = ()


def load(path: Path = FILE) -> list[Finding]:
    """Raises BenchError for a finding that lacks a part, or whose evidence is not in the repository."""
    found = []
    for number, entry in enumerate(yaml.safe_load(path.read_text(encoding="utf-8")), 1):
        try:
            finding = Finding(**{**entry, "evidence": tuple(entry.get("evidence", ()))})
        except TypeError as error:
            raise BenchError(f"{path.name}, finding {number}: {error}") from None
        missing = [name for name in finding.evidence if not (ROOT / name).exists()]
        if missing:
            raise BenchError(f"{path.name}, finding {number}: {missing[0]} is not in the repository: correct the path")
        if finding.origin not in ORIGINS or (finding.origin == "measured" and not finding.evidence):
            raise BenchError(
                f"{path.name}, finding {number}: origin measured needs evidence; the other is {ORIGINS[1]}"
            )
        found.append(finding)
    return found


def html(findings: list[Finding]) -> str:
    """Table rows; texts are plain."""
    head = "<tr><th></th><th>believed</th><th>true</th><th>by what measurement</th></tr>"
    return f"<table class='findings'>{head}{''.join(map(_row, findings))}</table>"


def _row(finding: Finding) -> str:
    evidence = "".join(f"<br><code>{escape(name)}</code>" for name in finding.evidence)
    label = "" if finding.origin == "measured" else f" <em>({escape(finding.origin)})</em>"
    cells = (finding.believed, finding.fact, finding.measured_by)
    texts = "".join(f"<td>{escape(text)}{evidence if text is finding.measured_by else ''}</td>" for text in cells)
    return f"<tr><th>{escape(finding.title)}{label}</th>{texts}</tr>"
