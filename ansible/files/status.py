#!/usr/bin/env python3
"""What a host serves: status.py STATE_FOLDER. Prints a JSON list with one object for each instance on record."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def health(record: dict) -> str:
    """`healthy`, or what Docker or systemd says about an instance that is not."""
    name = record["deployment"]["instance"]
    if record["deployment"]["supervisor"] == "compose":
        filters = [f"label=com.docker.compose.project={name}", "label=com.docker.compose.service=sglang"]
    else:
        filters = [f"label=ddtree.instance={name}"]
    found = output("docker", "ps", *(f"--filter={text}" for text in filters), "--format={{.Status}}")
    if state := re.search(r"\((healthy|unhealthy|health: starting)\)", found):
        return state[1].replace("health: ", "")
    return output("systemctl", "is-active", f"sglang@{name}.service") or "down"


def accept_length(record: dict) -> str:
    """Tokens per target step of late, from the metrics; the recorded value where nothing was served yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{record['deployment']['port']}/metrics", timeout=5) as reply:
            lines = re.findall(r"^sglang:spec_accept_length\{.*\} (\S+)$", reply.read().decode(), re.M)
    except OSError:
        lines = []
    if lines and float(lines[0]) > 0:
        return f"{float(lines[0]):.2f}"
    recorded = record["smoke"]["measured"].get("accept_length")
    return f"{recorded:.2f} (at the gate)" if recorded else "-"


def fallen_to(state: Path, name: str) -> str:
    try:
        text = (state / "instances" / name / "fallback.env").read_text()
    except OSError:
        return ""
    return text.strip().split("=")[-1]


def describe(state: Path, path: Path) -> dict:
    record = json.loads(path.read_text())
    deployment = record["deployment"]
    fallen = fallen_to(state, deployment["instance"])
    found = health(record)
    return {
        "instance": deployment["instance"],
        "version": deployment.get("release") or deployment["image"].removeprefix("sha256:")[:12],
        "health": f"{found}, FALLEN BACK to {fallen}" if fallen else found,
        "accept_length": accept_length(record),
        "since": record["recorded_at"],
    }


def main() -> None:
    state = Path(sys.argv[1])
    print(json.dumps([describe(state, path) for path in sorted(state.glob("*.json")) if "-smoke" not in path.name]))


if __name__ == "__main__":
    main()
