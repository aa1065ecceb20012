"""Make a large model pair out of a small one: same function, same acceptance, any size, no download.

    python -m bench.widen --target DIR --drafter DIR --out DIR

A small model is bound by kernel launches, so speculation cannot gain on it; the widened pair has the work of
a large model and still the small pair's answers. The defaults make about 6.5 billion parameters of
SmolLM2-135M and its drafter.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from bench.errors import BenchError
from bench.padding import Padding, Sizes
from models.checkpoint import check_folders
from models.errors import ModelError

SHARD_BYTES = 2 << 30
DTYPES = ("float32", "bfloat16", "float16")


@dataclass
class Model:
    """A checkpoint to widen: its folder, config.json, sizes and weights (name -> file)."""

    role: str
    folder: Path
    config: dict
    sizes: Sizes
    files: dict[str, Path]

    @classmethod
    def read(cls, role: str, folder: Path) -> Model:
        config = json.loads((folder / "config.json").read_text())
        heads = config["num_attention_heads"]
        sizes = Sizes(
            hidden=config["hidden_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
        )
        files = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as weights:
                files |= dict.fromkeys(weights.keys(), path)
        return cls(role, folder, config, sizes, dict(sorted(files.items())))

    def widened_config(self, new: Sizes, dtype: str) -> dict:
        """config.json of the widened model; the norms' eps shrinks with the mean square of a padded vector."""
        config = self.config | {
            "hidden_size": new.hidden,
            "num_attention_heads": new.heads,
            "num_key_value_heads": new.kv_heads,
            "head_dim": new.head_dim,
            "intermediate_size": new.intermediate,
            "rms_norm_eps": self.config["rms_norm_eps"] * self.sizes.hidden / new.hidden,
        }
        return config | {key: dtype for key in ("dtype", "torch_dtype") if key in config}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.widen", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True, help="folder of the small target")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of its drafter")
    parser.add_argument("--out", type=Path, required=True, help="new folder, gets target/ and drafter/")
    parser.add_argument("--hidden", type=int, default=4608, help="hidden size (default 4608)")
    parser.add_argument("--heads", type=int, default=48, help="query heads (default 48)")
    parser.add_argument("--kv-heads", type=int, default=16, help="key-value heads (default 16)")
    parser.add_argument("--intermediate", type=int, help="neurons of an MLP (default: grows as the hidden size)")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of the weights (default bfloat16)")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="where the noise is made (default: a GPU if any)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default 0)")
    return parser.parse_args(argv)


def new_sizes(old: Sizes, args: argparse.Namespace) -> Sizes:
    """Sizes to widen to. Raises BenchError naming the flag that cannot be met."""
    intermediate = args.intermediate or old.intermediate * args.hidden // old.hidden
    wanted = {
        "--hidden": (args.hidden, old.hidden),
        "--heads": (args.heads, old.heads),
        "--kv-heads": (args.kv_heads, old.kv_heads),
        "--intermediate": (intermediate, old.intermediate),
    }
    for flag, (value, least) in wanted.items():
        if value < least:
            raise BenchError(f"{flag} {value} is less than the model has: use at least {least}")
    if args.heads * old.kv_heads != args.kv_heads * old.heads:
        raise BenchError(
            f"--heads {args.heads} over --kv-heads {args.kv_heads} changes the grouping: "
            f"keep {old.heads // old.kv_heads} query heads per key-value head, "
            f"as --heads {args.kv_heads * old.heads // old.kv_heads} does"
        )
    if args.hidden % args.heads:
        raise BenchError(
            f"--hidden {args.hidden} is not a multiple of --heads {args.heads}, which model loaders demand: "
            f"use --hidden {-(-args.hidden // args.heads) * args.heads}"
        )
    return Sizes(args.hidden, args.heads, args.kv_heads, old.head_dim, intermediate)


@dataclass
class Plan:
    """How one model is widened: its new sizes, its weights' padding, their names by the file they go to."""

    model: Model
    sizes: Sizes
    padding: Padding
    files: list[list[str]]
    dtype: str

    @classmethod
    def make(cls, model: Model, args: argparse.Namespace, generator: torch.Generator) -> Plan:
        """Look at every weight without reading it. Raises BenchError for what cannot be widened."""
        sizes = new_sizes(model.sizes, args)
        normed_queries = any(name.endswith("q_norm.weight") for name in model.files)
        padding = Padding(model.sizes, sizes, normed_queries, generator)
        return cls(model, sizes, padding, split(model, padding, getattr(torch, args.dtype).itemsize), args.dtype)

    def write(self, folder: Path) -> int:
        """Write the widened model into a new folder; returns the number of parameters."""
        folder.mkdir(parents=True)
        count = self._write_weights(folder)
        for path in self.model.folder.iterdir():
            if path.is_file() and path.name != "config.json" and ".safetensors" not in path.name:
                shutil.copyfile(path, folder / path.name)
        # Last, because a folder without it is refused: a run that was cut short leaves nothing that looks whole.
        config = self.model.widened_config(self.sizes, self.dtype)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        return count

    def _write_weights(self, folder: Path) -> int:
        """Write the weights with one file's worth of them in memory at a time."""
        places, count, last = {}, 0, len(self.files)
        for number, names in enumerate(self.files, 1):
            file = f"model-{number:05}-of-{last:05}.safetensors" if last > 1 else "model.safetensors"
            tensors = dict(self._grown(names))
            save_file(tensors, folder / file, metadata={"format": "pt"})
            places |= dict.fromkeys(names, file)
            count += sum(tensor.numel() for tensor in tensors.values())
        if last > 1:
            size = count * getattr(torch, self.dtype).itemsize
            index = {"metadata": {"total_size": size}, "weight_map": places}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
        return count

    def _grown(self, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        for name in names:
            with safe_open(self.model.files[name], "pt") as weights:
                yield name, self.padding.grow(name, weights.get_tensor(name), getattr(torch, self.dtype)).cpu()


def split(model: Model, padding: Padding, itemsize: int) -> list[list[str]]:
    """The weights' names by file, so that a file holds at most SHARD_BYTES; a larger weight stands alone."""
    groups, used = [[]], 0
    for name, path in model.files.items():
        with safe_open(path, "pt") as weights:
            shape = weights.get_slice(name).get_shape()
        size = prod(padding.shape(name, shape)) * itemsize
        if groups[-1] and used + size > SHARD_BYTES:
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += size
    return groups


def widen(args: argparse.Namespace) -> dict[str, int]:
    """Widen the pair; returns the number of parameters by role. Raises BenchError or ModelError beforehand."""
    check_folders(args.target, args.drafter)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise BenchError("--device cuda finds no GPU here: use --device cpu")
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise BenchError(f"--out {args.out} is there already and not empty: name a new folder")
    generator = torch.Generator(device).manual_seed(args.seed)
    models = [Model.read(role, folder) for role, folder in (("target", args.target), ("drafter", args.drafter))]
    plans = [Plan.make(model, args, generator) for model in models]
    counts = {plan.model.role: plan.write(args.out / plan.model.role) for plan in plans}
    check_folders(args.out / "target", args.out / "drafter")
    return counts


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        counts = widen(args)
    except (BenchError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for role, count in counts.items():
        print(f"{args.out / role}: {count / 1e9:.2f} billion parameters, {args.dtype}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
