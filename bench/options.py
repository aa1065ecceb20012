"""What the command lines of matrix and tune have in common."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench import facts, serving
from bench.arms import FORMS, Launch, Setup, launch, parse_arms
from bench.cells import Load, Measuring
from bench.contexts import Prompts
from bench.deployed import Deployed
from bench.errors import BenchError
from bench.fleet import Fleet, check_remote
from bench.serving import Slo
from models.checkpoint import check_folders
from models.compatibility import drafter_block_size
from smoke_tests import pair


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of its drafter")
    parser.add_argument("--arms", type=checked(parse_arms), required=True, metavar="ARM,...", help=FORMS)
    parser.add_argument("--run", type=Path, required=True, help="folder of the results; one that is there is resumed")
    parser.add_argument("--samples", type=int, default=10, help="per cell (default 10)")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="tokens of every answer (default 64)")
    parser.add_argument("--questions", type=int, default=8, help="prompts that a sample asks at least (default 8)")
    parser.add_argument(
        "--serving-requests",
        type=int,
        default=2,
        help="of SGLang's load generator, per request at once; 0 leaves it out (default 2)",
    )
    parser.add_argument("--slo-ttft-ms", type=float, default=1000, help="first token of a good request (default 1000)")
    parser.add_argument("--slo-tpot-ms", type=float, default=50, help="each token after it (default 50)")
    parser.add_argument("--pair", help="whose questions judge the answers (default: found in the target's path)")
    parser.add_argument("--no-quality", action="store_true", help="measure speed alone; tune refuses such cells")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--side-by-side", type=int, default=16, help="most servers at once (default 16)")
    parser.add_argument("--gpus", type=int, default=1, help="cards to spread the servers over (default 1)")
    parser.add_argument("--pool-tokens", type=int, help="KV pool of each server (default: what the requests need)")
    parser.add_argument("--server-flags", default="", help="more flags for every server, as one string")
    parser.add_argument("--seed", type=int, default=0, help="of prompts and intervals (default 0)")
    parser.add_argument(
        "--url", action="append", default=[], metavar="ARM=URL", help="an arm that runs already; may be repeated"
    )
    parser.add_argument(
        "--deploy", metavar="HOST:INSTANCE", help="instance of the inventory that is rolled out as each arm in turn"
    )
    parser.add_argument("--inventory", type=Path, help="of Ansible, for --deploy (default: the kit's)")


def checked(parse):
    """Give argparse the sentence of a BenchError."""

    def parsed(text: str):
        try:
            return parse(text)
        except BenchError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def counts(flag: str):
    """A parser of whole numbers from 1 on, in rising order."""

    def parse(text: str) -> list[int]:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdigit() and int(part) > 0 for part in parts):
            raise BenchError(f"{flag} has {text!r}: use whole numbers from 1 on, as in 1,8,32")
        return sorted({int(part) for part in parts})

    return checked(parse)


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be measured, before a server is started. Raises BenchError or ModelError."""
    least = {"samples": 1, "max_new_tokens": 4, "questions": 1, "serving_requests": 0, "side_by_side": 1, "gpus": 1}
    for name, bound in least.items():
        if getattr(args, name) < bound:
            raise BenchError(f"--{name.replace('_', '-')} {getattr(args, name)} is too low: use at least {bound}")
    check_folders(args.target, args.drafter)
    for arm in args.arms:
        if arm.block_size:
            check_folders(args.target, args.drafter, arm.block_size)
        if args.device == "cpu" and arm.eager:
            raise BenchError(f"--arms names {arm.name} and a CPU has no CUDA graphs: leave :eager out")
        if args.deploy and arm.eager:
            raise BenchError(
                f"--arms names {arm.name} and no instance is deployed without CUDA graphs: leave :eager out"
            )
    if args.deploy and (args.url or ":" not in args.deploy):
        raise BenchError(f"--deploy {args.deploy}: use HOST:INSTANCE, without --url")
    _urls(args)


def setup(args: argparse.Namespace, contexts: list[int], concurrencies: list[int]) -> Setup:
    return Setup(
        target=str(args.target),
        drafter=str(args.drafter),
        device=args.device,
        block_size=block_size(args.drafter),
        max_concurrency=max(concurrencies),
        max_new_tokens=args.max_new_tokens,
        extra=tuple(shlex.split(args.server_flags)),
        prompt_tokens=max(contexts),
        pool_tokens=args.pool_tokens,
    )


def fleet(args: argparse.Namespace, common: Setup, logs: Path) -> Fleet | Deployed:
    """The servers; running ones are asked what they are. Raises BenchError."""
    if args.deploy:
        return Deployed(args.deploy, args.inventory, args.arms, logs)
    urls = _urls(args)
    for arm in args.arms:
        if arm.name in urls:
            check_remote(arm, urls[arm.name])
    own = {arm.name: launch(arm, common) for arm in args.arms if arm.name not in urls}
    return Fleet(spread(own, args.gpus), urls, logs, args.side_by_side)


def spread(launches: Mapping[str, Launch], gpus: int) -> dict[str, Launch]:
    """Each server on a card of its own as far as there are `gpus`, then in turns."""
    if gpus == 1:
        return dict(launches)
    numbered = enumerate(launches.items())
    return {
        name: replace(launch, environment=launch.environment | {"CUDA_VISIBLE_DEVICES": str(number % gpus)})
        for number, (name, launch) in numbered
    }


def measuring(args: argparse.Namespace, logs: Path) -> Measuring:
    """Raises PairError when nothing is known about the pair's answers, BenchError without the load generator."""
    if args.serving_requests:
        serving.check()
    expected = None if args.no_quality else pair.load(pair.resolve(args.pair, str(args.target)))
    load = Load(
        samples=args.samples,
        max_new_tokens=args.max_new_tokens,
        questions=args.questions,
        serving_requests=args.serving_requests,
        slo=Slo(args.slo_ttft_ms / 1000, args.slo_tpot_ms / 1000),
        seed=args.seed,
    )
    prompts = Prompts.load(str(args.target), args.seed)
    return Measuring(load, prompts, expected, str(args.target), args.device, logs)


def settings(args: argparse.Namespace, what: str, **axes) -> dict:
    """What a resumed run must share with its beginning: all but the arms, which may be added to."""
    return {
        "what": what,
        **axes,
        **{
            name: getattr(args, name)
            for name in (
                "samples",
                "max_new_tokens",
                "questions",
                "serving_requests",
                "slo_ttft_ms",
                "slo_tpot_ms",
                "pair",
                "no_quality",
                "device",
                "gpus",
                "deploy",
                "pool_tokens",
                "server_flags",
                "seed",
            )
        },
        **facts.card(args.device),
        "versions": facts.versions(),
        "patches": facts.patches(),
        "block_size": block_size(args.drafter),
        "target": facts.fingerprint(args.target),
        "drafter": facts.fingerprint(args.drafter),
    }


def block_size(drafter: Path) -> int:
    return int(drafter_block_size(json.loads((drafter / "config.json").read_text())))


def _urls(args: argparse.Namespace) -> dict[str, str]:
    urls = {}
    for given in args.url:
        # An option of an arm has an equals sign of its own.
        name, sign, address = given.partition("=http")
        if not sign or name not in {arm.name for arm in args.arms}:
            raise BenchError(f"--url {given} names no arm of --arms: use ARM=http://HOST:PORT")
        urls[name] = "http" + address
    return urls
