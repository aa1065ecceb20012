"""How often the smoke tests pass on a server that is known to be good, and how long they take.

    python -m bench.gate_runs --base-url http://127.0.0.1:30000 --runs 20 --beside nothing --output runs.json

Every run is a process of its own, as after a roll-out. Runs are added to the file, which is written after each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def suite(base_url: str, report: Path) -> list[str]:
    """Command of one run."""
    options = ["-p", "no:cacheprovider", "--base-url", base_url, "--json-report", str(report)]
    return [sys.executable, "-m", "pytest", "smoke_tests", *options]


def one_run(base_url: str, beside: str) -> dict:
    """Verdict of one run, its seconds, the load average at its end, and whatever did not pass."""
    began = time.monotonic()
    started_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        code = subprocess.run(suite(base_url, path), cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode
        seconds = round(time.monotonic() - began, 1)
        report = json.loads(path.read_text(encoding="utf-8"))
    failed = {p["probe"]: p["evidence"] for p in report["probes"] if p["verdict"] == "fail"}
    found = {"started_at": started_at, "beside": beside, "exit_code": code, "verdict": report["verdict"]}
    return found | {"failed": failed, "seconds": seconds, "load_at_end": round(os.getloadavg()[0], 2)}


def document(path: Path, base_url: str) -> dict:
    """The file's content, or that of a new file."""
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    command = " ".join(["pytest", *suite(base_url, Path("report.json"))[3:]])
    return {"date": str(datetime.date.today()), "machine": machine, "command": command, "runs": []}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--beside", required=True, help="what else the machine does meanwhile, in words")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(argv)
    record = document(args.output, args.base_url)
    for number in range(1, args.runs + 1):
        run = one_run(args.base_url, args.beside)
        record["runs"].append(run)
        args.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{number:>3}  {run['verdict']}  {run['seconds']:.1f} s  {run['failed'] or ''}", flush=True)
    return int(any(run["exit_code"] for run in record["runs"]))


if __name__ == "__main__":
    sys.exit(main())
