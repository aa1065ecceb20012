"""What the log of a starting server tells: which phase took how long."""

from __future__ import annotations

import re

# Lines of the server's log that end a phase, and what that phase did.
MARKS = {
    "Load weight begin": "import, processes, device",
    "Load weight end": "read weights",
    "KV Cache is allocated": "allocate KV cache",
    "CUDA graph begin": "prepare capture",
    "CUDA graph end": "capture graphs",
    "Application startup complete": "start HTTP",
    "fired up and ready": "warm-up request",
}
_CAPTURE = re.compile(r"Capture (.+?) CUDA graph end")


def phases(seen: list[tuple[float, str]], started: float) -> dict[str, float]:
    """Phase -> seconds, from the lines that end one; what follows the last line is the health check's."""
    found, last = dict.fromkeys(MARKS.values(), 0.0), 0.0
    for second, line in seen:
        phase = next((name for mark, name in MARKS.items() if mark in line), None)
        if phase:
            found[phase] += second - last
            last = second
    found["until healthy"] = started - last
    return {name: round(seconds, 1) for name, seconds in found.items() if seconds >= 0.05}


def captures(seen: list[tuple[float, str]]) -> dict[str, float]:
    """Seconds of each capture of CUDA graphs, by its name in the log."""
    found: dict[str, float] = {}
    for _, line in seen:
        name, elapsed = _CAPTURE.search(line), re.search(r"elapsed=([\d.]+) s", line)
        if name and elapsed:
            found[name[1]] = round(found.get(name[1], 0.0) + float(elapsed[1]), 1)
    return found
