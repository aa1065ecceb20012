#!/usr/bin/env python3
"""What a host serves: status.py STATE_FOLDER. Prints a JSON list with one object for each instance."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def container(record: dict) -> str:
    """Id of the instance's container, empty without one."""
    name = record["deployment"]["instance"]
    if record["deployment"]["supervisor"] == "compose":
        filters = [f"label=com.docker.compose.project={name}", "label=com.docker.compose.service=sglang"]
    else:
        filters = [f"label=ddtree.instance={name}"]
    return output("docker", "ps", "--quiet", *(f"--filter={text}" for text in filters))


def health(record: dict) -> str:
    """`healthy`, or what Docker or systemd says about an instance that is not."""
    found = container(record)
    state = output("docker", "inspect", "--format={{.State.Health.Status}}", found) if found else ""
    return state or output("systemctl", "is-active", f"sglang@{record['deployment']['instance']}.service") or "down"


def last_words(record: dict) -> str:
    """Last line that the server wrote: how far a start is, or why there is none."""
    if record["deployment"]["supervisor"] == "compose":
        command = ["docker", "logs", "--tail=1", container(record)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout.strip()
    name = record["deployment"]["instance"]
    return output("journalctl", f"--identifier=sglang-{name}", "--lines=1", "--output=cat", "--no-pager")


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


def instances(state: Path) -> dict[str, dict]:
    """Instance to its record; one that is being deployed for the first time has none yet."""
    records = [json.loads(path.read_text()) for path in state.glob("*.json") if "-smoke" not in path.name]
    found = {record["deployment"]["instance"]: record for record in records}
    for home in (state / "instances").glob("*"):
        deployment = {"instance": home.name, "supervisor": "systemd", "release": (home / "current").resolve().name}
        found.setdefault(home.name, {"deployment": deployment})
    return dict(sorted(found.items()))


def describe(state: Path, record: dict) -> dict:
    deployment = record["deployment"]
    fallen = fallen_to(state, deployment["instance"])
    found = health(record)
    return {
        "instance": deployment["instance"],
        "version": deployment.get("release") or deployment["image"].removeprefix("sha256:")[:12],
        "health": f"{found}, FALLEN BACK to {fallen}" if fallen else found,
        "last_words": "" if found == "healthy" else last_words(record),
        "accept_length": accept_length(record) if "smoke" in record else "-",
        "since": record.get("recorded_at", "-"),
    }


def main() -> None:
    state = Path(sys.argv[1])
    print(json.dumps([describe(state, record) for record in instances(state).values()]))


if __name__ == "__main__":
    main()
