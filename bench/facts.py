"""What a result must carry to be judged later: machine, versions, models, command."""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path

PACKAGES = ("torch", "triton", "sglang", "sglang-ddtree", "transformers")
_END_BYTES = 1 << 20


def card(device: str) -> dict[str, str | None]:
    """Card and driver, or the processor of a run on the CPU."""
    if device == "cpu" or not shutil.which("nvidia-smi"):
        return {"card": f"no GPU ({_processor()})", "driver": None}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    line = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    name, _, driver = line.partition(",")
    return {"card": name.strip(), "driver": driver.strip()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def versions() -> dict[str, str | None]:
    """Versions of what decides the speed; None for a package without metadata."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def model(folder: Path) -> dict:
    """Shape and size of a checkpoint, from its config.json and the headers of its weights."""
    config = json.loads((folder / "config.json").read_text())
    shapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    keys = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    return {
        "path": str(folder),
        "architecture": config["architectures"][0],
        "parameters": sum(map(prod, shapes.values())),
        **{key: config.get(key) for key in keys},
    }


def run() -> dict[str, str]:
    """Date and command of this run."""
    module = Path(sys.argv[0]).stem
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", f"bench.{module}", *sys.argv[1:]]),
    }


def patches() -> str | None:
    """Name of the installed patch series; None where the plugin is not installed."""
    try:
        from sglang_ddtree.selfcheck import installed_series
    except ImportError:
        return None
    return installed_series()


def fingerprint(folder: Path) -> str:
    """Twelve hex digits that change with a checkpoint: its config, and each weight file's size, header and both ends.

    Not a checksum of every byte, which takes a minute for a large model; `python -m models verify` is that.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(_END_BYTES))
            file.seek(max(0, size - _END_BYTES))
            digest.update(file.read(_END_BYTES))
    return digest.hexdigest()[:12]
