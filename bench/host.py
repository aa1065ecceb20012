"""What else the machine did while a cell was measured: throttling, load, stolen time, neighbours on the card."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

#: Bits of NVML's clock event reasons that slow a card down for heat, power or a fault; idle and a set limit are none.
SLOWDOWNS = {0x4: "power cap", 0x8: "hardware", 0x20: "software heat", 0x40: "hardware heat", 0x80: "power brake"}
_GPU_FIELDS = "clocks.sm,clocks.max.sm,temperature.gpu,power.draw,clocks_event_reasons.active"


class Watch:
    """Collects looks at the machine between `__init__` and `summary`. device: "cuda" or "cpu"."""

    def __init__(self, device: str) -> None:
        self.gpu = device != "cpu" and shutil.which("nvidia-smi") is not None
        self._ticks = _cpu_ticks()
        self._looks: list[dict] = []
        self.look()

    def look(self) -> None:
        """One more look; costs some tens of milliseconds on a GPU machine, so call it between samples."""
        self._looks.append({"load": os.getloadavg()[0], "cards": _cards() if self.gpu else []})

    def summary(self) -> dict:
        """Highest load, share of CPU time stolen by other machines, and on a GPU the cards' state."""
        self.look()
        now = _cpu_ticks()
        total = sum(now.values()) - sum(self._ticks.values())
        found = {
            "cpus": os.cpu_count(),
            "load_max": round(max(look["load"] for look in self._looks), 2),
            "steal_share": round((now["steal"] - self._ticks["steal"]) / total, 4) if total else 0.0,
            "busy_share": round(1 - (now["idle"] - self._ticks["idle"]) / total, 4) if total else 0.0,
        }
        return found | (self._gpu_summary() if self.gpu else {})

    def _gpu_summary(self) -> dict:
        cards = [card for look in self._looks for card in look["cards"]]
        reasons = sorted({reason for card in cards for reason in card["slowed_by"]})

        def seen(key: str) -> list[float]:
            return [card[key] for card in cards if card[key] is not None]

        return {
            "sm_mhz_min": min(seen("sm_mhz"), default=None),
            "sm_mhz_max": max(seen("sm_mhz"), default=None),
            "celsius_max": max(seen("celsius"), default=None),
            "watts_max": max(seen("watts"), default=None),
            "slowed_by": reasons,
            "processes_on_card": _processes(),
        }


def _cpu_ticks() -> dict[str, int]:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, map(int, Path("/proc/stat").read_text().split()[1:9]), strict=True))


def _cards() -> list[dict]:
    return [parse_card(line) for line in _smi(f"--query-gpu={_GPU_FIELDS}").splitlines()]


def parse_card(line: str) -> dict:
    """One line of nvidia-smi's CSV (fields of _GPU_FIELDS, no units); None for what a card does not tell."""
    *figures, active = (part.strip() for part in line.split(","))
    clock, limit, celsius, watts = map(_number, figures)
    mask = int(active, 16) if active.startswith("0x") else 0
    slowed = [name for bit, name in SLOWDOWNS.items() if mask & bit]
    return {"sm_mhz": clock, "sm_mhz_limit": limit, "celsius": celsius, "watts": watts, "slowed_by": slowed}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]" and the like
        return None


def _processes() -> int:
    """Processes that hold memory on a card, those of the benchmark's servers included."""
    return len(_smi("--query-compute-apps=pid").splitlines())


def _smi(query: str) -> str:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
