"""Servers that run with the probe plugin."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.engine.server import Engine

PLUGIN = Path(__file__).resolve().parent


def with_probe(
    environment: dict[str, str], mode: str = "", native: bool = False, latent: bool = False
) -> dict[str, str]:
    """The environment with the plugin found and set to `mode`; `native` for float32 on a GPU, `latent` for MLA on a
    CPU."""
    path = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(PLUGIN))))
    switches = {"DDTREE_PROBE": mode, "DDTREE_NATIVE_OPS": "1" if native else ""}
    switches["DDTREE_LATENT_PREFILL"] = "1" if latent else ""
    return {**environment, **switches, "PYTHONPATH": path}


@dataclass(frozen=True)
class ProbedEngine(Engine):
    """An engine on the CPU with the plugin in the mode `probe`; `latent` for a target with MLA."""

    probe: str = ""
    latent: bool = False

    def environment(self) -> dict[str, str]:
        return with_probe(super().environment(), self.probe, latent=self.latent)
