"""The engine matrix's results file: groups are added or replaced, so that each can be run by itself."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone
from pathlib import Path

VERSIONS = """
import importlib.metadata as m, json, platform, torch
names = ("sglang", "torch", "triton", "transformers")
found = {n: m.version(n) for n in names if any(True for _ in m.distributions(name=n))}
print(json.dumps({"python": platform.python_version(), **found, "cuda": torch.version.cuda}))
"""


def machine(python: str, device: str, env: dict[str, str]) -> dict:
    """Card, driver and versions of what serves."""
    run = subprocess.run([python, "-c", VERSIONS], env=env, capture_output=True, text=True, check=True)
    versions = json.loads(run.stdout.strip().splitlines()[-1])
    if device == "cpu":
        return {"card": "none (CPU)", "versions": versions}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    return {"card": card, "driver": driver, "versions": versions}


class Report:
    """Collects the cases of a run and writes the file after each, so that an interrupted run leaves its part."""

    def __init__(self, path: Path, head: dict, expected: dict[str, int]):
        """Args: `head` goes into each group (machine, command), `expected` is the number of cases by group."""
        self.path = path
        self.groups = json.loads(path.read_text())["groups"] if path.is_file() else {}
        self.expected = expected
        self.mine = list(expected)
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        for name in expected:
            self.groups[name] = {"date": date, **head, "finished": False, "cases": []}

    def add(self, groups: list[str], result: dict) -> None:
        """Enter a case's result and write the file."""
        for name in groups:
            group = self.groups[name]
            group["cases"].append(result)
            group["finished"] = len(group["cases"]) == self.expected[name]
        self._write()

    def passed(self) -> bool:
        """Whether every group of this run is complete and without a fault."""
        groups = [self.groups[name] for name in self.mine]
        return all(group["finished"] and all(case["ok"] for case in group["cases"]) for group in groups)

    def totals(self) -> dict:
        """Counts over the tree servers of all groups in the file."""
        cases = [case for group in self.groups.values() for case in group["cases"] if "budget" in case]
        parted = [each for case in cases for each in divergences(case)]
        return {
            "cases": len(cases),
            "passed": sum(case["ok"] for case in cases),
            "answers_compared": sum(count(case) for case in cases),
            "divergences": len(parted),
            "largest_gap_at_a_divergence": max((each["gap"] for each in parted), default=0.0),
        }

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"totals": self.totals(), "groups": self.groups}, indent=1)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text + "\n")
        partial.replace(self.path)


def measurements(case: dict) -> list[dict]:
    """Every measurement of a case that compared answers, whatever it is nested in."""
    found, rest = [], [value for value in case.values() if isinstance(value, dict)]
    while rest:
        each = rest.pop()
        if "answers" in each:
            found.append(each)
        rest += [value for value in each.values() if isinstance(value, dict)]
    return found


def divergences(case: dict) -> list[dict]:
    """All places where a case's answers part from those without speculation."""
    if case.get("probe", "").startswith("width_bug"):
        return []  # brought about on purpose
    return [each for one in measurements(case) for each in one.get("divergences", [])]


def count(case: dict) -> int:
    """Answers compared in a case."""
    return sum(one["answers"] for one in measurements(case))


def line(group: str, result: dict) -> str:
    """One line per case for the terminal."""
    batch = result.get("batches", result.get("accept", {})).get("1", {})
    parts = [
        "ok  " if result["ok"] else "FAIL",
        f"{group}/{result['name']}",
        f"answers={count(result)}",
        f"divergences={len(divergences(result))}",
    ]
    parts += [f"{key}={batch[key]}" for key in ("accept_length", "simulated") if key in batch]
    parts += [f"{key}={result[key]}" for key in ("steps", "eager_steps", "start_s", "run_s") if key in result]
    return " ".join(parts + [f"| {fault}" for fault in result["faults"]])
