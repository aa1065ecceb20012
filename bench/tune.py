"""Pick the settings of each workload by measuring: most candidates leave after each round (successive halving).

    python -m bench.tune --target DIR --drafter DIR --arms ar,chain,tree:8:4,tree:16:4 --run FOLDER --profile FILE

A round measures the cells of its candidates as bench.matrix does, so a run that was stopped goes on where it was. An
arm that answers worse than the server without speculation is never chosen, however fast. What others report
(priors.yaml) joins the candidates.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import yaml

from bench import options, profile
from bench.arms import Arm, engine_settings, parse_arms
from bench.claims import BASELINE, Standing, standings
from bench.command import guarded
from bench.errors import BenchError
from bench.fleet import Fleet
from bench.matrix import Matrix
from bench.progress import say
from bench.store import Cell, Run

PRIORS = Path(__file__).with_name("priors.yaml")
FIRST_SAMPLES = 3
SHRINK = 3  # with halves and the baseline in each round, few candidates would cost as much as the full grid


@dataclass(frozen=True)
class Workload:
    """context: prompt tokens. concurrency: requests at once."""

    name: str
    context: int
    concurrency: int


#: Name -> (context, concurrency) unless the command line says otherwise.
WORKLOADS = {"latency": (60, 1), "throughput": (1024, 32), "long_context": (4096, 8)}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tune", description=__doc__.partition("\n")[0])
    options.add(parser)
    parser.add_argument("--profile", type=Path, required=True, help="YAML file to write")
    add_workload(parser, default=", ".join(f"{n}:{c}:{k}" for n, (c, k) in WORKLOADS.items()))
    parser.add_argument("--no-priors", action="store_true", help="leave out what others report")
    args = parser.parse_args(argv)
    args.workload = args.workload or [Workload(name, *point) for name, point in WORKLOADS.items()]
    return args


def add_workload(parser: argparse.ArgumentParser, default: str) -> None:
    """The option --workload. default: in words, what holds without it."""
    parser.add_argument(
        "--workload",
        action="append",
        type=options.checked(parse_workload),
        metavar="NAME:CONTEXT:CONCURRENCY",
        help=f"may be repeated (default: {default})",
    )


def parse_workload(text: str) -> Workload:
    name, _, point = text.partition(":")
    context, _, concurrency = point.partition(":")
    if not (name and context.isdigit() and concurrency.isdigit() and int(context) and int(concurrency)):
        raise BenchError(f"--workload has {text!r}: use NAME:CONTEXT:CONCURRENCY, as in latency:60:1")
    return Workload(name, int(context), int(concurrency))


def rounds(samples: int) -> list[int]:
    """Samples per cell in each round: SHRINK times as many as in the one before, `samples` in the last."""
    found = [samples]
    while found[0] >= SHRINK * FIRST_SAMPLES:
        found.insert(0, found[0] // SHRINK)
    return found


def survivors(candidates: Sequence[str], found: dict[str, Standing]) -> list[str]:
    """The fastest of the candidates whose answers are no worse, one in SHRINK, and the baseline in any case."""
    able = sorted((n for n in candidates if found[n].eligible), key=lambda n: -found[n].tokens_per_s)
    kept = able[: -(-len(able) // SHRINK)]
    return [name for name in candidates if name in kept or name == BASELINE]


def choose(found: dict[str, Standing]) -> Standing:
    """The fastest arm whose answers are no worse. Raises BenchError when there is none."""
    able = [standing for standing in found.values() if standing.eligible]
    if not able:
        reasons = "; ".join(f"{s.arm}: {s.why}" for s in found.values())
        raise BenchError(f"no arm may be chosen ({reasons}): add ar to --arms and measure quality")
    return max(able, key=lambda standing: standing.tokens_per_s)


def search(workload: Workload, names: Sequence[str], samples: int, measure: Callable[[int, list[str]], dict]) -> dict:
    """Successive halving. measure(samples, names) gives the standings of one round.

    Returns the workload's part of the profile.
    """
    candidates, history = list(names), []
    for count in rounds(samples):
        found = measure(count, candidates)
        history.append(history_line(count, found))
        last = found
        candidates = survivors(candidates, found)
    return part(workload, last, history)


def part(workload: Workload, found: dict[str, Standing], history: Sequence[dict]) -> dict:
    """A workload's part of the profile: the best arm of the last round, and all rounds."""
    best = choose(found)
    return {
        "context": workload.context,
        "concurrency": workload.concurrency,
        "arm": best.arm,
        "settings": engine_settings(parse_arms(best.arm)[0]),
        "tokens_per_s": best.tokens_per_s,
        "interval": best.interval,
        "over": best.over,
        "rounds": list(history),
    }


def history_line(samples: int, found: dict[str, Standing]) -> dict:
    """One round of the evidence."""
    return {"samples": samples, "arms": {name: _line(standing) for name, standing in found.items()}}


def _line(standing: Standing) -> dict:
    line = {"tokens_per_s": standing.tokens_per_s, "quality": standing.quality}
    return line | ({} if standing.eligible else {"why": standing.why})


def prior_arms(device: str, block_size: int) -> dict[str, str]:
    """Arms that others report, by the workload that they report them for. A CPU's drafter has no window."""
    found = {}
    for name, row in yaml.safe_load(PRIORS.read_text())["workloads"].items():
        window = f":window={row['window']}" if "window" in row and device != "cpu" else ""
        # A drafter takes a smaller block than it was trained for, and proposes nothing of use in a larger one.
        block = f":block={row['block_size']}" if row.get("block_size", block_size) < block_size else ""
        found[name] = f"tree:{row['budget']}:{row['top_k']}{block}{window}"
    return found


class Tuner:
    """Tunes the workloads of one host; the servers stay up between rounds as far as there is room."""

    def __init__(self, args: argparse.Namespace, arms: Sequence[Arm]) -> None:
        self.args, self.arms, self.logs = args, arms, args.run / "logs"
        self.common = options.setup(args, *_axes(args.workload))
        self.settings = options.settings(args, "tune", workloads=[asdict(w) for w in args.workload])
        self.measuring = options.measuring(args, self.logs)
        self.run_folder = Run.begin(args.run, self.settings)  # kept: it holds the lock
        self.logs.mkdir(exist_ok=True)

    def run(self) -> dict[str, dict]:
        """The profile's part of each workload."""
        names = [arm.name for arm in self.arms]
        with options.fleet(self.args, self.common, self.logs) as fleet:
            return {
                w.name: search(w, names, self.args.samples, partial(self.measure, fleet, w)) for w in self.args.workload
            }

    def measure(self, fleet: Fleet, workload: Workload, samples: int, names: list[str]) -> dict[str, Standing]:
        """One round, into a folder of its own; the load generator runs in the last alone."""
        run = Run.begin(self.args.run / f"{workload.name}-{samples}", self.settings | {"samples": samples})
        last = samples == self.args.samples
        load = replace(self.measuring.load, samples=samples, serving_requests=self.args.serving_requests if last else 0)
        matrix = Matrix(run, fleet, [arm for arm in self.arms if arm.name in names], self.measuring.with_load(load))
        for cells in matrix.left([(workload.context, workload.concurrency)]):
            matrix.measure(cells)
        say(f"{workload.name}: {samples} samples of {', '.join(names)}")
        cells = {cell: found for cell, found in run.cells().items() if cell.arm in names}
        return standings(cells, workload.context, workload.concurrency)


def _axes(workloads: Sequence[Workload]) -> tuple[list[int], list[int]]:
    return [w.context for w in workloads], [w.concurrency for w in workloads]


def shortfall(tuned_profile: dict, cells: dict[Cell, dict]) -> dict[str, float]:
    """By workload, the tokens per second of its arm over those of the best eligible cell of another run there.

    Below 1 the profile is not the best; workloads whose point or arm the run lacks are left out.
    """
    found = {}
    for name, tuned in tuned_profile["workloads"].items():
        there = standings(cells, tuned["context"], tuned["concurrency"])
        if tuned["arm"] in there and any(s.eligible for s in there.values()):
            found[name] = round(there[tuned["arm"]].tokens_per_s / choose(there).tokens_per_s, 4)
    return found


def tune(args: argparse.Namespace) -> dict:
    """Measure, write the profile, return it. Raises what options.check and the search raise."""
    options.check(args)
    names = {arm.name for arm in args.arms}
    if BASELINE not in names:
        raise BenchError(f"--arms lacks {BASELINE}: without it nobody knows which answers are right and what pays")
    wanted = {workload.name for workload in args.workload}
    priors = {} if args.no_priors else prior_arms(args.device, options.block_size(args.drafter))
    priors = {name: arm for name, arm in priors.items() if name in wanted}
    arms = [*args.arms, *(parse_arms(name)[0] for name in sorted(set(priors.values()) - names))]
    args.pool_tokens = args.pool_tokens or max(pool_tokens(args, workload) for workload in args.workload)
    tuner = Tuner(args, arms)
    found = profile.build(tuner.settings, args.run, tuner.run(), priors)
    profile.write(args.profile, found)
    return found


def pool_tokens(args: argparse.Namespace, workload: Workload) -> int:
    """KV pool that the workload needs; the longest prompts and the most requests need not come together."""
    return workload.concurrency * options.setup(args, [workload.context], [workload.concurrency]).request_tokens


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)

    def run() -> int:
        for name, row in tune(args)["workloads"].items():
            print(f"{name}: {row['arm']}, {row['tokens_per_s']} tokens per second")
        return 0

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
