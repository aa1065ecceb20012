"""Speed of AR, chain and trees side by side on one device, with steps counted apart from time.

    python -m bench.step_cost --target DIR --drafter DIR --arms ar,chain,tree:16:4 --output RESULT.json

One server per arm, all loaded at once; the arms take turns within each repetition, so that a drift of the
machine meets all of them. With --profile the trees run once more, by themselves, with their stages timed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import facts, options, stages
from bench.arms import FORMS, Arm, Launch, Setup, launch, parse_arms
from bench.command import stored
from bench.errors import BenchError
from bench.progress import say
from bench.prompts import QUESTIONS, tokenised
from bench.servers import Server, running
from bench.step_table import ratios, table
from bench.steps import medians, sample
from bench.waves import WARM_UP_TOKENS, run_wave, waves_for
from models.checkpoint import check_folders

EAGER_STEPS = "sglang:ddtree_eager_steps_total"
METHOD = (
    "Requests go out in waves of the given concurrency, greedy, ignore_eos, the prompts' prefix cached. "
    "tokens_per_s: tokens over the client's wall time. ms_per_step: latency of each wave's first finished answer, "
    "less that of the same prompt answered with one token, over its verify steps: a step of the full batch. "
    "full_batch_tokens_per_s: concurrency x committed tokens per step / ms_per_step. accept_length: completion "
    "tokens over verify steps. Medians over repetitions."
)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.step_cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of its drafter")
    parser.add_argument("--arms", type=options.checked(parse_arms), required=True, metavar="ARM,...", help=FORMS)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument(
        "--concurrency", type=options.counts("--concurrency"), default=[1], metavar="N,...", help="requests at once"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=128, help="tokens of every answer")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--profile", action="store_true", help="also time the stages of the trees' steps")
    parser.add_argument("--server-flags", default="", help="more flags for every server, as one string")
    parser.add_argument("--log-dir", type=Path, help="where the servers' logs go (default: a temporary folder)")
    return parser.parse_args(argv)


class Bench:
    """One run: the arms, what they are started with, the prompts."""

    def __init__(self, args: argparse.Namespace, logs: Path) -> None:
        self.args, self.logs = args, logs
        self.arms: dict[str, Arm] = {arm.name: arm for arm in args.arms}
        self.setup = Setup(
            target=str(args.target),
            drafter=str(args.drafter),
            device=args.device,
            block_size=options.block_size(args.drafter),
            max_concurrency=max(args.concurrency),
            max_new_tokens=args.max_new_tokens,
            extra=tuple(shlex.split(args.server_flags)),
        )
        self.prompts = tokenised(str(args.target))

    def run(self) -> dict:
        """The whole document."""
        launches = {name: launch(arm, self.setup) for name, arm in self.arms.items()}
        samples, engines, eager_steps = self.throughput(launches)
        split = self.profile(launches) if self.args.profile else {}
        return {
            "what": "step cost: AR, chain and trees side by side",
            **facts.card(self.args.device),
            "versions": facts.versions(),
            "patches": next((engine["patches"] for engine in engines.values() if engine), None),
            **facts.run(),
            "device": self.args.device,
            "dtype": self.setup.dtype,
            "target": facts.model(self.args.target),
            "drafter": facts.model(self.args.drafter) | {"block_size": self.setup.block_size},
            "method": METHOD,
            "repetitions": self.args.repetitions,
            "max_new_tokens": self.args.max_new_tokens,
            "prompts": list(QUESTIONS),
            "arms": {
                name: {
                    "flags": shlex.join(launches[name].flags),
                    "environment": launches[name].environment,
                    "note": launches[name].note,
                    "engine": engines[name],
                    "eager_steps": eager_steps[name],
                    "median": {c: medians(rows) for c, rows in samples[name].items()},
                    "samples": samples[name],
                    "stages": split.get(name),
                }
                for name in self.arms
            },
            "ratios": {c: ratios({name: samples[name][c] for name in self.arms}) for c in self._counts()},
        }

    def _counts(self) -> list[str]:
        return [str(count) for count in self.args.concurrency]

    def throughput(self, launches: dict[str, Launch]):
        """Samples by arm and concurrency, what each engine says of itself, its decode steps outside graphs."""
        samples = {name: {count: [] for count in self._counts()} for name in launches}
        with running(launches, self.logs) as servers:
            say("all servers are up")
            for name, server in servers.items():
                self.warm_up(name, server)
            for repetition in range(self.args.repetitions):
                for count in self._counts():
                    for name, server in servers.items():
                        samples[name][count].append(self.measure(name, server, int(count)))
                say(f"repetition {repetition + 1} of {self.args.repetitions} done")
            engines = {name: server.engine() for name, server in servers.items()}
            eager = {name: server.counter(EAGER_STEPS) for name, server in servers.items()}
        return samples, engines, eager

    def warm_up(self, name: str, server: Server) -> None:
        """Fill the prefix cache and touch every batch size; fails when the arm does not do what its name says."""
        for count in self.args.concurrency:
            for prompts in waves_for(self.prompts, count):
                try:
                    run_wave(server, prompts, WARM_UP_TOKENS, self.arms[name].speculative)
                except BenchError as error:
                    raise BenchError(f"{name}: {error}") from None

    def measure(self, name: str, server: Server, count: int) -> dict:
        speculative = self.arms[name].speculative
        waves = waves_for(self.prompts, count)
        return sample([run_wave(server, wave, self.args.max_new_tokens, speculative) for wave in waves], speculative)

    def profile(self, launches: dict[str, Launch]) -> dict[str, dict[str, dict]]:
        """Stage times by tree and concurrency, from servers that do nothing else."""
        trees = [name for name, arm in self.arms.items() if arm.kind == "tree"]
        files = {name: self.logs / f"stages-{name.replace(':', '-')}.jsonl" for name in trees}
        timed = {}
        for name, file in files.items():
            file.unlink(missing_ok=True)
            environment = launches[name].environment | {"SGLANG_DDTREE_STAGE_FILE": str(file.resolve())}
            timed[name] = replace(launches[name], environment=environment)
        (self.logs / "profile").mkdir(exist_ok=True)
        with running(timed, self.logs / "profile") as servers:
            say("all profiled servers are up")
            for name, server in servers.items():
                self.warm_up(name, server)
            return {
                name: {count: self.stage_times(server, int(count), files[name]) for count in self._counts()}
                for name, server in servers.items()
            }

    def stage_times(self, server: Server, count: int, file: Path) -> dict:
        waves = waves_for(self.prompts, count)

        def wave() -> None:
            waves.append(waves.pop(0))
            run_wave(server, waves[0], self.args.max_new_tokens, speculative=True)

        return stages.measure(wave, file)


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be measured, before a server is started. Raises BenchError or ModelError."""
    check_folders(args.target, args.drafter)
    if args.repetitions < 1:
        raise BenchError(f"--repetitions {args.repetitions} measures nothing: use at least 1")
    if args.max_new_tokens < 2:
        raise BenchError(f"--max-new-tokens {args.max_new_tokens} has no decode step: use at least 2")
    if args.profile and not any(arm.kind == "tree" for arm in args.arms):
        raise BenchError("--profile times the stages of trees and --arms names none: add one, as in tree:16:4")
    if args.device == "cpu" and any(arm.eager for arm in args.arms):
        raise BenchError("--arms names an :eager arm and a CPU has no CUDA graphs: leave :eager out")


def measure(args: argparse.Namespace) -> dict:
    """The whole document. Raises BenchError or ModelError."""
    check(args)
    logs = args.log_dir or Path(tempfile.mkdtemp(prefix="step-cost-"))
    logs.mkdir(parents=True, exist_ok=True)
    return Bench(args, logs).run()


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    return stored(lambda: measure(args), args.output, table)


if __name__ == "__main__":
    sys.exit(main())
