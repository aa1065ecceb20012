"""The matrix: context lengths x concurrencies x arms, speed beside quality, one result file per cell.

    python -m bench.matrix --target DIR --drafter DIR --arms ar,chain,tree:16:4 \
        --contexts 60,1024 --concurrency 1,8 --run FOLDER

Started again with the same folder it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator

from bench import options
from bench.arms import Arm
from bench.cells import Block, Measuring
from bench.command import guarded
from bench.fleet import Fleet
from bench.progress import say
from bench.store import Cell, Run

UNFINISHED = 75  # exit code: cells are left, start it again


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.matrix", description=__doc__.partition("\n")[0])
    options.add(parser)
    parser.add_argument("--contexts", type=options.counts("--contexts"), default=[60], metavar="TOKENS,...")
    parser.add_argument("--concurrency", type=options.counts("--concurrency"), default=[1], metavar="N,...")
    parser.add_argument(
        "--stop-after", type=float, metavar="SECONDS", help="begin no block that would probably end later"
    )
    return parser.parse_args(argv)


class Matrix:
    """Measures the cells of a run that are not done."""

    def __init__(self, run: Run, fleet: Fleet, arms: list[Arm], measuring: Measuring) -> None:
        self.run, self.fleet, self.measuring = run, fleet, measuring
        self.arms = {arm.name: arm for arm in arms}
        self.longest_s = 0.0

    def left(self, points: list[tuple[int, int]]) -> Iterator[list[Cell]]:
        """The cells that are not done, in blocks that are measured together; all blocks of a group in a row.

        points: (context, concurrency).
        """
        for group in self.fleet.groups(list(self.arms)):
            for context, concurrency in points:
                cells = [Cell(context, concurrency, name) for name in group]
                missing = [cell for cell in cells if not self.run.done(cell)]
                if missing:
                    yield missing

    def measure(self, cells: list[Cell]) -> None:
        """Measure and store one block."""
        began = time.monotonic()
        names = [cell.arm for cell in cells]
        servers = self.fleet.up(names)
        arms = {name: self.arms[name] for name in names}
        block = Block(arms, servers, cells[0].context, cells[0].concurrency)
        found = self.measuring.measure(block, self.judged(block.concurrency))
        for cell in cells:
            served = found[cell.arm]["server"]["dtype"]
            self.run.write(cell, self._settings_of(cell.arm) | {"dtype": served} | found[cell.arm])
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def judged(self, concurrency: int) -> dict[str, dict]:
        """Quality by arm as another context's cell has it: what is asked for it does not depend on the context."""
        known = ((cell, found["quality"]) for cell, found in self.run.cells().items())
        return {cell.arm: quality for cell, quality in known if quality and cell.concurrency == concurrency}

    def _settings_of(self, name: str) -> dict:
        """All that is needed to measure the cell again."""
        started = self.fleet.launches.get(name)
        return {
            "run": self.run.settings,
            "deployment": self.fleet.deployment(),
            "flags": shlex.join(started.flags) if started else None,
            "environment": started.environment if started else None,
            "note": started.note if started else None,
        }


def measure(args: argparse.Namespace) -> bool:
    """Measure what is left; whether all is done now."""
    began, logs = time.monotonic(), args.run / "logs"
    options.check(args)
    run = Run.begin(args.run, options.settings(args, "matrix", contexts=args.contexts, concurrencies=args.concurrency))
    logs.mkdir(exist_ok=True)
    common = options.setup(args, args.contexts, args.concurrency)
    measuring = options.measuring(args, logs)
    check_prompts(measuring, args.contexts)
    with options.fleet(args, common, logs) as fleet:
        matrix = Matrix(run, fleet, args.arms, measuring)
        blocks = list(matrix.left(fitting(args)))
        say(f"{sum(map(len, blocks))} cells in {len(blocks)} blocks to measure")
        for number, cells in enumerate(blocks, 1):
            if args.stop_after and time.monotonic() - began + matrix.longest_s > args.stop_after:
                return False
            matrix.measure(cells)
            point = f"context {cells[0].context}, {cells[0].concurrency} at once"
            say(f"block {number} of {len(blocks)} done: {point}, {', '.join(cell.arm for cell in cells)}")
    return True


def fitting(args: argparse.Namespace) -> list[tuple[int, int]]:
    """The points (context, concurrency) whose requests fit into --pool-tokens together; says which do not.

    What does not fit would be retracted and prefilled again in the middle of a sample.
    """
    found = []
    for context in args.contexts:
        for concurrency in args.concurrency:
            tokens = concurrency * options.setup(args, [context], [concurrency]).request_tokens
            if args.pool_tokens and tokens > args.pool_tokens:
                say(f"context {context}, {concurrency} at once left out: needs --pool-tokens {tokens}")
            else:
                found.append((context, concurrency))
    return found


def check_prompts(measuring: Measuring, contexts: list[int]) -> None:
    """Raises BenchError for a context that holds no question, before a server is started."""
    measuring.prompts.of(min(contexts), measuring.load.questions)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    return guarded(lambda: 0 if measure(args) else UNFINISHED)


if __name__ == "__main__":
    sys.exit(main())
