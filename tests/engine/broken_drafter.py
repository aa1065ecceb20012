"""Drafters that fit their target by every check of shape and are still the wrong ones."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def shifted_layers(drafter: Path, into: Path) -> Path:
    """The same weights, told to read each target layer's neighbour."""
    shutil.copytree(drafter, into)
    path = into / "config.json"
    config = json.loads(path.read_text())
    ids = config["dflash_config"]["target_layer_ids"]
    config["dflash_config"]["target_layer_ids"] = [number - 1 for number in ids]
    path.write_text(json.dumps(config))
    return into


def other_step(drafter: Path, into: Path) -> Path:
    """Weights as far from the trained ones as an early checkpoint: each matrix half noise of its own size."""
    shutil.copytree(drafter, into, ignore=shutil.ignore_patterns("*.safetensors"))
    noise = torch.Generator().manual_seed(1)
    weights = load_file(drafter / "model.safetensors")
    for name, tensor in weights.items():
        if tensor.ndim == 2:
            drawn = torch.randn(tensor.shape, generator=noise) * tensor.float().std()
            weights[name] = (0.5 * tensor.float() + 0.5 * drawn).to(tensor.dtype)
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    return into
