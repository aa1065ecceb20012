#!/usr/bin/env python3
"""Run the kernels under compute-sanitizer, which comes with the CUDA toolkit, and write what it found.

    python tests/gpu/sanitize.py --output bench/results/NAME.json

memcheck sees accesses outside an allocation, racecheck races in shared memory, synccheck barriers that not all
threads reach.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu.engine_report import machine

CASES = Path(__file__).with_name("sanitized_cases.py")
TOOLS = ("memcheck", "racecheck", "synccheck")
SUMMARY = re.compile(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)")
COVERED = re.compile(r'\{"shapes".*\}')


def run(tool: str, seconds: float) -> dict:
    """One tool over the cases: errors found, and the cases that were run."""
    # One allocation per tensor, or an access beyond a tensor would still lie inside PyTorch's own block.
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    command = ["compute-sanitizer", "--tool", tool, sys.executable, str(CASES), str(seconds)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    errors, covered = SUMMARY.findall(text), COVERED.findall(text)
    if done.returncode or not errors or not covered:
        return {"errors": None, "ok": False, "output": text[-1000:]}
    count = sum(map(int, errors))
    return {"errors": count, "ok": count == 0, **json.loads(covered[-1])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60, help="after which a tool starts no further case")
    args = parser.parse_args()
    if not shutil.which("compute-sanitizer"):
        print("sanitize: skipped: compute-sanitizer is not on PATH; it comes with the CUDA toolkit")
        return 0
    found = {tool: run(tool, args.seconds) for tool in TOOLS}
    result = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        **machine(sys.executable, "cuda", dict(os.environ)),
        "command": f"python tests/gpu/sanitize.py --seconds {args.seconds:g} --output {args.output.name}",
        "tools": found,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 0 if all(each["ok"] for each in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
