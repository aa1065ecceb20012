"""One block of cells: all arms of a group at one context and concurrency, measured in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import facts, quality, serving
from bench.arms import Arm
from bench.contexts import Prompts
from bench.host import Watch
from bench.servers import Endpoint, Server
from bench.stats import interval_of
from bench.steps import MEASURES, medians, sample
from bench.waves import WARM_UP_TOKENS, run_wave, waves_for
from smoke_tests.pair import Pair

COUNTERS = {
    "eager_steps": "sglang:ddtree_eager_steps_total",
    "retracted_requests": "sglang:num_retracted_requests_total",
}


@dataclass(frozen=True)
class Load:
    """What every cell is asked, beside its own context and concurrency.

    samples: per arm. questions: how many of the prompts one sample asks, at least one wave of them.
    serving_requests: of the load generator for each loop, per request at once; 0 leaves it out.
    """

    samples: int
    max_new_tokens: int
    questions: int
    serving_requests: int
    slo: serving.Slo
    seed: int


@dataclass(frozen=True)
class Block:
    """The arms of a group at one point."""

    arms: Mapping[str, Arm]
    servers: Mapping[str, Endpoint]
    context: int
    concurrency: int


class Measuring:
    """Measures blocks. expected: what the pair answers, None to leave quality out. logs: for the load generator."""

    def __init__(self, load: Load, prompts: Prompts, expected: Pair | None, target: str, device: str, logs: Path):
        self.load, self.prompts, self.expected = load, prompts, expected
        self.target, self.device, self.logs = target, device, logs

    def with_load(self, load: Load) -> Measuring:
        """The same with another load."""
        return Measuring(load, self.prompts, self.expected, self.target, self.device, self.logs)

    def measure(self, block: Block, judged: Mapping[str, dict]) -> dict[str, dict]:
        """The cells' documents by arm. judged: the quality of arms that is known at this concurrency."""
        # Requests with the same prompt would share its KV, and find it in the GPU's cache.
        prompts = self.prompts.of(block.context, max(self.load.questions, block.concurrency))
        waves = waves_for(prompts, block.concurrency, least=1)
        self._warm_up(block, waves)
        watch, counters = Watch(self.device), {name: _counters(server) for name, server in block.servers.items()}
        run, samples, answers = facts.run(), {name: [] for name in block.arms}, {}
        for repetition in range(self.load.samples):
            for name in turn(list(block.arms), repetition):
                row, answers[name] = self._sample(block, name, waves)
                samples[name].append(row)
            watch.look()
        served = {name: self._serve(block, server) for name, server in block.servers.items()}
        judged = {name: judged.get(name) or self._judge(block, name) for name in block.arms}
        host = watch.summary()
        shared = {
            **run,
            "block": {"began": run["date"], "arms": list(block.arms)},
            "prompt_tokens": sorted({len(prompt) for prompt in prompts}),
        }
        return {
            name: {
                **shared,
                "server": _server_facts(block.servers[name]),
                "samples": samples[name],
                "median": medians(samples[name]),
                "interval": {key: interval_of(samples[name], key, self.load.seed) for key in MEASURES},
                "answers": answers[name],
                "serving": served[name],
                "quality": judged[name],
                "counters": _grown(counters[name], _counters(block.servers[name])),
                "host": host,
            }
            for name in block.arms
        }

    def _warm_up(self, block: Block, waves) -> None:
        """Fill the prefix cache, touch the batch size, and fail now when an arm does not do what its name says."""
        for name, server in block.servers.items():
            for wave in waves:
                run_wave(server, wave, WARM_UP_TOKENS, block.arms[name].speculative)

    def _sample(self, block: Block, name: str, waves) -> tuple[dict, list[list[int]]]:
        speculative, tokens = block.arms[name].speculative, self.load.max_new_tokens
        done = [run_wave(block.servers[name], wave, tokens, speculative) for wave in waves]
        asked = [list(answer) for wave in done for answer in wave.tokens][: self.load.questions]
        return sample(done, speculative), asked

    def _serve(self, block: Block, server: Endpoint) -> dict | None:
        count = self.load.serving_requests * block.concurrency
        if not count:
            return None
        texts = [self.prompts.text(ids) for ids in self.prompts.of(block.context, count)]
        log = self.logs / f"serving-{server.name.replace(':', '-')}.log"
        return serving.loops(
            server.url, self.target, texts, self.load.max_new_tokens, block.concurrency, self.load.slo, log
        )

    def _judge(self, block: Block, name: str) -> dict | None:
        if self.expected is None:
            return None
        point = {"context": block.context, "concurrency": block.concurrency, "date": facts.run()["date"]}
        url, speculative = block.servers[name].url, block.arms[name].speculative
        return quality.measure(url, self.expected, block.concurrency, speculative) | {"measured_at": point}


def turn(names: list[str], repetition: int) -> list[str]:
    """The order of a repetition: each arm goes first equally often, so that none always follows the same one."""
    first = repetition % len(names)
    return names[first:] + names[:first]


def _counters(server: Endpoint) -> dict[str, float | None]:
    return {name: server.counter(metric) for name, metric in COUNTERS.items()}


def _grown(before: dict[str, float | None], after: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if after[name] is None else after[name] - (before[name] or 0) for name in after}


def _server_facts(server: Endpoint) -> dict:
    info = server.info()
    state = (info.get("internal_states") or [{}])[0]
    return {
        "sglang": info.get("version"),
        "patches": state.get("ddtree_patches"),
        "dtype": info.get("dtype"),
        "max_running_requests": info.get("max_running_requests"),
        "pool_tokens": info.get("max_total_num_tokens"),
        "engine": server.engine() if isinstance(server, Server) else None,
        "start_s": server.start_s if isinstance(server, Server) else None,
        "url": None if isinstance(server, Server) else server.url,
    }
