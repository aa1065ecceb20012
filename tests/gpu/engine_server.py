"""Start and ask the servers of the engine matrix, on a GPU or (to try the matrix itself) on a CPU."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import requests

from tests.engine.server import CPU_FLAGS, Server, core_of_each_rank
from tests.engine.server import environment as cpu_environment
from tests.gpu.engine_cases import Case
from tests.probe_plugin.probed_engine import with_probe

FIRST_PORT = 21000

# Few graph shapes start faster; the prefill's own graphs have nothing to do with speculation.
CUDA_FLAGS = shlex.split(
    "--attention-backend triton --sampling-backend pytorch --grammar-backend none --random-seed 1 "
    "--mem-fraction-static 0.9 --max-total-tokens 40000 --context-length 2048 --max-running-requests 16 "
    "--disable-prefill-cuda-graph --enable-metrics --sleep-on-idle --host 127.0.0.1"
)
GRAPHS = ("--cuda-graph-bs-decode", "1", "2", "4", "8", "16")


@dataclass(frozen=True)
class Setup:
    """What all servers of a run share. `drafters` maps a block size to the drafter's folder."""

    python: str
    device: str
    target: Path
    drafters: dict[int, Path]


@dataclass(frozen=True)
class MatrixEngine:
    """Command and environment of one case, as `tests.engine.server.Server` wants them."""

    setup: Setup
    case: Case

    def command(self, port: int) -> list[str]:
        case = self.case
        flags = [*CPU_FLAGS] if self.setup.device == "cpu" else [*CUDA_FLAGS, "--nccl-port", str(port + 1)]
        if self.setup.device == "cuda":
            flags += GRAPHS if case.graphs else ("--disable-cuda-graph",)
        flags += ["--dtype", case.dtype, "--model-path", str(self.setup.target), "--port", str(port)]
        if case.budget is not None:
            drafter = str(self.setup.drafters[case.block_size])
            flags += ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", drafter]
        ranks = ["--tp-size", str(case.tp)] if case.tp > 1 else []
        return [self.setup.python, "-m", "sglang.launch_server", *flags, *ranks, *case.flags]

    def environment(self) -> dict[str, str]:
        case = self.case
        extra = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **dict(case.env)}
        if case.dtype == "float32":
            # Triton multiplies float32 in TF32 otherwise, in another order of tiles for each width.
            extra["TRITON_F32_DEFAULT"] = "ieee"
        if case.budget is not None:
            extra |= {"SGLANG_DDTREE_BUDGET": str(case.budget), "SGLANG_DDTREE_TOPK": str(case.top_k)}
        if self.setup.device == "cpu" and case.tp > 1:
            extra["SGLANG_CPU_OMP_THREADS_BIND"] = core_of_each_rank(case.tp)
        if case.tiers:
            table = self.folder / "tiers.json"
            table.write_text(json.dumps({"tiers": {str(start): name for start, name in case.tiers}}))
            extra["SGLANG_DDTREE_TIERS"] = str(table)
        base = cpu_environment(**extra) if self.setup.device == "cpu" else {**os.environ, **extra}
        native = self.setup.device == "cuda" and case.dtype == "float32"
        probe = case.probe.replace("{folder}", str(self.folder))
        return with_probe(base, probe, native) if probe or native else base

    @cached_property
    def folder(self) -> Path:
        """Where the probe of this case writes."""
        return Path(tempfile.mkdtemp(prefix=f"{self.case.name}-"))


class MatrixServer(Server):
    """A running case. Ports are assigned: servers that start together would race for free ones."""

    def __init__(self, engine: MatrixEngine, number: int):
        super().__init__(engine)
        self.port = FIRST_PORT + 10 * number
        self.url = f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_):
        for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def ask(self, ids: list[int], max_new_tokens: int, **fields) -> dict:
        """Greedy completion of token ids, the end-of-text token ignored; the server's whole reply."""
        params = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": params, **fields}
        reply = requests.post(f"{self.url}/generate", json=body, timeout=300)
        reply.raise_for_status()
        return reply.json()

    def hang_up_midway(self, ids: list[int], after_chunks: int = 3) -> None:
        """Start a streamed completion and close the connection, which aborts the request."""
        params = {"temperature": 0, "max_new_tokens": 200, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": params, "stream": True}
        with requests.post(f"{self.url}/generate", json=body, stream=True, timeout=300) as reply:
            for count, _ in enumerate(reply.iter_lines()):
                if count >= after_chunks:
                    return

    def stream_times(self, ids: list[int], max_new_tokens: int) -> list[float]:
        """Seconds at which each chunk of a streamed completion arrived."""
        params = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": params, "stream": True}
        with requests.post(f"{self.url}/generate", json=body, stream=True, timeout=300) as reply:
            return [time.perf_counter() for text in reply.iter_lines() if text.startswith(b"data: {")]

    def engine_state(self) -> dict:
        """What the engine says about itself in /server_info."""
        reply = requests.get(f"{self.url}/server_info", timeout=30)
        reply.raise_for_status()
        return reply.json()["internal_states"][0]

    def healthy(self) -> bool:
        return self.process.poll() is None and self._ready()

    def counter(self, name: str) -> float | None:
        """Sum of a counter over its label sets, None where the server exports none."""
        text = requests.get(f"{self.url}/metrics", timeout=30).text
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values)) if values else None
