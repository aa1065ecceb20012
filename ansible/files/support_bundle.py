#!/usr/bin/env python3
"""What a bug report needs of a host, without its secrets: support_bundle.py STATE_FOLDER [SECRET_FILE ...]

Writes a tar archive, compressed and as base64 text, to the standard output. Only what is listed below is looked at;
each text goes through `Redactor` before it is packed, so a file that is added to the list is covered, too. Values of
secret files (API keys, tokens) are removed wherever they stand, and so is whatever looks like a secret, and the text of
requests and answers where a server logs them.
"""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

REMOVED = "[removed]"
COMMAND_S = 60
LOG_LINES = 2000
#: Shorter values would take parts of ordinary words with them.
SHORTEST = 6
COMMANDS = {
    "system/uname.txt": "uname -a",
    "system/os-release.txt": "cat /etc/os-release",
    "system/memory.txt": "free -m",
    "system/disk.txt": "df -h",
    "system/processors.txt": "lscpu",
    "system/sockets.txt": "ss --listening --tcp --numeric",
    "system/units.txt": "systemctl list-units --all --no-pager sglang* prometheus* docker.service nvidia*",
    "system/packages.txt": "dpkg-query --show docker* containerd* *nvidia* libcuda* prometheus* linux-image-*",
    "docker/info.txt": "docker info",
    "docker/containers.txt": "docker ps --all --no-trunc",
    "docker/images.txt": "docker image ls --no-trunc --digests",
    "docker/daemon.json": "cat /etc/docker/daemon.json",
    "gpu/nvidia-smi.txt": "nvidia-smi -q",
    "gpu/topology.txt": "nvidia-smi topo -m",
    "gpu/driver.txt": "cat /proc/driver/nvidia/version",
    "gpu/kernel.txt": "journalctl --dmesg --boot --no-pager --lines=500 --grep=NVRM|nvidia|AER|Out.of.memory",
    "kit/metrics.txt": "cat /var/lib/prometheus/node-exporter/sglang-ddtree.prom",
    "kit/monitoring.json": "cat /etc/sglang-ddtree/monitoring.json",
}
PER_INSTANCE = {
    "unit.txt": "systemctl cat sglang@{name}.service",
    "status.txt": "systemctl status --no-pager --lines=0 sglang@{name}.service",
    "container.json": "docker container inspect sglang-{name}",
    "log.txt": f"journalctl --unit=sglang@{{name}}.service --no-pager --output=short-iso --lines={LOG_LINES}",
    "fall-back.txt": "journalctl --unit=sglang-fallback@{name}.service --no-pager --output=short-iso --lines=200",
}
#: Of a release; credentials.env is not among them.
RELEASE_FILES = ("release.json", "unit.env", "server.env", "smoke.json", "passed.json")

# Ends there: max_total_tokens and api_key_file are none.
_NAME = r"[\w.-]*(?:key|token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie)"
_VALUE = r"(\"[^\"]*\"|'[^']*'|(?:bearer|basic)\s+\S+|[^\s,;\"'}\]]+)"
PATTERNS = [
    # KEY=value, "key": "value", Authorization: Bearer value
    (re.compile(rf"(?i)(\b{_NAME}[\"']?\s*[=:]\s*){_VALUE}"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)(--{_NAME}\s+)(?!-)(\S+)"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {REMOVED}"),
    (re.compile(r"(\w+://)[^\s/@:]*:[^\s@]*@"), rf"\1{REMOVED}@"),
    (re.compile(r"\b(?:hf_|sk-|ghp_|glpat-|AKIA|xox[abp]-)[\w-]{8,}"), REMOVED),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S), REMOVED),
    # SGLang's log of requests, in both of its formats, holds their text.
    (re.compile(r"^.*(?:\b(?:Receive(?: OpenAI)?|Finish): |\"event\": \"request\.).*$", re.M), f"{REMOVED}: a request"),
]


class Redactor:
    """Removes known values first, in the forms in which they may stand, then what looks like a secret."""

    def __init__(self, values: list[str]):
        known = {form for value in values for form in forms(value)}
        self._known = sorted((form for form in known if len(form) >= SHORTEST), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for value in self._known:
            text = text.replace(value, REMOVED)
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)
        return text


def forms(value: str) -> list[str]:
    """A secret as it is, and as JSON and base64 write it."""
    return [value, json.dumps(value)[1:-1], base64.b64encode(value.encode()).decode()]


def secret_values(paths: list[str]) -> list[str]:
    """Every line of the secret files, without NAME= before it."""
    found = []
    for path in paths:
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        found += [part.strip() for line in lines for part in (line, line.partition("=")[2]) if part.strip()]
    return found


def output(command: str) -> str:
    """What a command says, also when it fails."""
    try:
        done = subprocess.run(command.split(), capture_output=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command}: {error}\n"
    return (done.stdout + done.stderr).decode(errors="replace")


def collect(state: Path) -> dict[str, str]:
    """Name in the archive to text, nothing removed yet."""
    found = {name: output(command) for name, command in COMMANDS.items()}
    for path in [*state.glob("*.json"), *state.glob("collectives/*.json"), state / "audit.log"]:
        found[f"state/{path.relative_to(state)}"] = read(path)
    for home in sorted((state / "instances").glob("*")):
        for name, command in PER_INSTANCE.items():
            found[f"instances/{home.name}/{name}"] = output(command.format(name=home.name))
        for link in ("current", "good"):
            found[f"instances/{home.name}/{link}"] = str(home.joinpath(link).resolve().name)
        for path in sorted(path for path in home.glob("releases/*/*") if path.name in RELEASE_FILES):
            found[f"instances/{path.relative_to(state / 'instances')}"] = read(path)
    return found


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{error}\n"


def pack(texts: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in sorted(texts.items()):
            content = text.encode()
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), int(time.time())
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def main() -> None:
    state = Path(sys.argv[1])
    secrets = [*sys.argv[2:], *map(str, state.glob("instances/*/credentials.env"))]
    redact = Redactor(secret_values(secrets))
    texts = {name: redact(text) for name, text in collect(state).items()}
    print(base64.b64encode(pack(texts)).decode())


if __name__ == "__main__":
    main()
