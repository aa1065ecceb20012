"""Command line: python -m models.train --target DIR --output DIR [--minutes N]."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch

from models.checkpoint import check_folders, read_json
from models.errors import ModelError
from models.train.loop import Pace
from models.train.run import Plan, Run

_START = Path(__file__).parents[1] / "drafters" / "smollm2-135m-dflash-b8"
#: Sequences generated at once; sequences and anchors of a training step.
_GENERATED = {"cuda": 4096, "cpu": 48}
_STEP = {"cuda": (64, 48), "cpu": (4, 12)}
#: Longest answer in tokens: with its prompt it must fit into the rotary tables.
_LONGEST = 1536
_DRY = {"questions": 4, "held_out": 2, "answer_tokens": 8, "exam_tokens": 8, "minutes": 30.0}


def _parser() -> argparse.ArgumentParser:
    cache = Path(os.environ.get("CACHE_DIR") or Path(__file__).parents[2] / ".cache")
    parser = argparse.ArgumentParser(
        prog="python -m models.train",
        description="Train a drafter on the target's own answers to ordinary questions.",
    )
    add = parser.add_argument
    add("--target", type=Path, default=cache / "models/smollm2-135m/target", help="folder of the Llama target")
    add("--start", type=Path, default=_START, help="folder of the drafter to start from (default: the stored one)")
    add("--output", type=Path, required=True, help="where the drafter is written, every minute anew")
    add("--work", type=Path, default=cache / "train", help="questions, answers, state; the same command goes on")
    add("--minutes", type=float, default=7.5, help="for everything together (default: 7.5)")
    add("--questions", type=int, default=90000, help="questions to ask for (default: 90000)")
    add("--held-out", type=int, default=128, help="questions of held-out topics to test with (default: 128)")
    add("--answer-tokens", type=int, default=192, help="longest answer to learn from (default: 192)")
    add("--exam-tokens", type=int, default=100, help="longest answer to test with (default: 100)")
    add("--layers", type=int, help="deepen the drafter to so many layers (default: as it is)")
    add("--rate", type=float, default=1e-3, help="peak learning rate (default: 0.001)")
    add("--soft", type=float, default=0.5, help="share of the target's distribution in the labels (default: 0.5)")
    add("--seed", type=int, default=0)
    add("--steps", type=int, help="end after so many steps, if the time does not end before")
    add("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dry-run", action="store_true", help="the whole way in miniature, on the CPU in about a minute")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one training; returns the exit code (0 done, 1 a ModelError, told in one line)."""
    options = _parser().parse_args(arguments)
    if options.dry_run:
        options.device, options.steps = "cpu", options.steps or 2
        vars(options).update(_DRY)
    try:
        _check(options)
        plan = Plan(
            str(options.target),
            options.questions,
            options.held_out,
            options.answer_tokens,
            options.exam_tokens,
            options.seed,
        )
        run = Run(plan, _GENERATED[options.device], options.start, options.work, options.output, options.device)
        run.report["command"] = _command(options)
        sequences, anchors = _STEP[options.device]
        run.execute(
            Pace(sequences, anchors, options.rate, options.soft, options.minutes * 60, options.steps), options.layers
        )
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _command(options: argparse.Namespace) -> str:
    """The command with all that decides the result; where the files lie does not."""
    words = ["python -m models.train"]
    for name, value in vars(options).items():
        if not isinstance(value, (Path, bool)) and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return " ".join(words)


def _check(options: argparse.Namespace) -> None:
    for name in ("minutes", "questions", "held_out", "answer_tokens", "exam_tokens", "rate"):
        if getattr(options, name) <= 0:
            raise ModelError(f"--{name.replace('_', '-')} is {getattr(options, name)}; set more than 0.")
    for name in ("answer_tokens", "exam_tokens"):
        if getattr(options, name) > _LONGEST:
            raise ModelError(f"--{name.replace('_', '-')} is {getattr(options, name)}; set at most {_LONGEST}.")
    if not 0 <= options.soft <= 1:
        raise ModelError(f"--soft is {options.soft}; set 0 to 1.")
    check_folders(options.target, options.start)
    kind = read_json(options.target / "config.json", "target").get("model_type")
    if kind != "llama":
        raise ModelError(f"The target in {options.target} is a {kind} model; only llama targets are trained for.")
    # The GPU's own choice would plan a kernel anew for every length of a growing cache.
    torch.backends.cuda.enable_cudnn_sdp(False)


if __name__ == "__main__":
    sys.exit(main())
