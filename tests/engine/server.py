"""A real SGLang server on the CPU, started from the engine environment of one version."""

import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import requests

from bench.servers import free_ports

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("CACHE_DIR", ROOT / ".cache")).resolve()
PAIR = CACHE / "models" / "smollm2-135m"
VERSIONS = ("0.5.16", "0.5.23")
START_SECONDS = 300

CPU_FLAGS = shlex.split(
    "--device cpu --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph "
    "--mem-fraction-static 0.8 --max-total-tokens 8192 --context-length 4096 --max-running-requests 4 "
    "--dtype float32 --enable-metrics --sleep-on-idle --host 127.0.0.1"
)


def python(version: str) -> Path:
    """Interpreter of a version's engine environment (`make engine-env`)."""
    return CACHE / f"engine-{version}" / "bin" / "python"


def environment(**extra: str) -> dict[str, str]:
    """Process environment of an engine; spinning OpenMP threads would starve the other processes."""
    base = {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    base["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "2")
    return {**os.environ, **base, "PYTHONPATH": str(ROOT / "docker" / "cpu"), **extra}


def core_of_each_rank(tp: int) -> str:
    """SGLANG_CPU_OMP_THREADS_BIND, which SGLang wants where there are more ranks than NUMA nodes."""
    return "|".join(str(rank % os.cpu_count()) for rank in range(tp))


@dataclass(frozen=True)
class Engine:
    """What a server runs.

    budget, tiers: None for both is a server without speculation; a table of tiers stands in place of a budget.
    tp: the number of its ranks.
    """

    version: str
    budget: int | None = None
    top_k: int = 4
    block_size: int | None = None
    target: Path = PAIR / "target"
    drafter: Path = PAIR / "drafter"
    flags: tuple[str, ...] = ()
    tp: int = 1
    tiers: Path | str | None = None

    @property
    def speculative(self) -> bool:
        return self.budget is not None or self.tiers is not None

    def command(self, port: int) -> list[str]:
        flags = [*CPU_FLAGS, "--model-path", str(self.target), "--port", str(port), *self.flags]
        if self.speculative:
            flags += ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(self.drafter)]
        if self.block_size is not None:
            flags += ["--speculative-dflash-block-size", str(self.block_size)]
        if self.tp > 1:
            flags += ["--tp-size", str(self.tp)]
        return [str(python(self.version)), "-m", "sglang.launch_server", *flags]

    def environment(self) -> dict[str, str]:
        ranks = {} if self.tp == 1 else {"SGLANG_CPU_OMP_THREADS_BIND": core_of_each_rank(self.tp)}
        if not self.speculative:
            return environment(**ranks)
        chosen = {"SGLANG_DDTREE_BUDGET": self.budget, "SGLANG_DDTREE_TIERS": self.tiers}
        shape = {name: str(value) for name, value in chosen.items() if value is not None}
        return environment(SGLANG_DDTREE_TOPK=str(self.top_k), **ranks, **shape)


@dataclass
class Answer:
    """Tokens of one completion and the target steps they took (0 without speculation)."""

    tokens: list[int]
    steps: int


def difference(found, expected) -> str:
    """Where two lists of answers part, for the assertion message."""
    for number, (mine, known) in enumerate(zip(found, expected, strict=True)):
        if mine.tokens != known.tokens:
            at = next(i for i, (a, b) in enumerate(zip(mine.tokens, known.tokens, strict=False)) if a != b)
            return f"prompt {number} parts at token {at}: {mine.tokens[at : at + 5]} for {known.tokens[at : at + 5]}"
    return ""


class Server:
    """Context manager: serves an `Engine` on a free port and stops it."""

    def __init__(self, engine: Engine):
        self.engine = engine
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        handle, name = tempfile.mkstemp(prefix="engine-", suffix=".log")
        self.log = Path(name)
        os.close(handle)

    def __enter__(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.engine.command(self.port),
                env=self.engine.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"server did not start:\n{self.log_text()[-3000:]}")
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 15)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        subprocess.run(["pkill", "-9", "-s", str(self.process.pid)], check=False)
        self.process.wait()

    def _ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/health", timeout=2).ok
        except requests.RequestException:
            return False

    def log_text(self) -> str:
        return self.log.read_text()

    def generate(self, prompt: str | list[int], max_new_tokens: int = 100, **sampling) -> Answer:
        params = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True, **sampling}
        key = "text" if isinstance(prompt, str) else "input_ids"
        reply = requests.post(f"{self.url}/generate", json={key: prompt, "sampling_params": params}, timeout=600)
        reply.raise_for_status()
        body = reply.json()
        return Answer(body["output_ids"], body["meta_info"].get("spec_verify_ct", 0))

    def forget(self) -> None:
        """Empty the prefix cache."""
        requests.post(f"{self.url}/flush_cache", timeout=60).raise_for_status()

    def answers(self, prompts, concurrency: int, max_new_tokens: int = 100) -> list[Answer]:
        """Greedy completions in the order of the prompts, at most `concurrency` at once."""
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, max_new_tokens), prompts))

    def abort_midway(self, prompt: str, after_chunks: int = 3) -> None:
        """Start a streamed completion and hang up."""
        params = {"temperature": 0, "max_new_tokens": 200, "ignore_eos": True}
        body = {"text": prompt, "sampling_params": params, "stream": True}
        with requests.post(f"{self.url}/generate", json=body, stream=True, timeout=600) as reply:
            for count, _ in enumerate(reply.iter_lines()):
                if count >= after_chunks:
                    return
