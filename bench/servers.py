"""SGLang servers as child processes: started side by side, asked over HTTP, stopped without a trace."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import requests

from bench.arms import Launch
from bench.errors import BenchError

START_SECONDS = 400
SERVER_PORTS = range(20000, 30000)
ANSWER_SECONDS = 600
PR_SET_PDEATHSIG = 1
_ENGINE = re.compile(r"DDTREE engine: (.*)", re.IGNORECASE)


class Endpoint:
    """A server that answers at a URL, started by whomever."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url.rstrip("/")

    def generate(self, prompts: list[list[int]], max_new_tokens: int) -> list[dict]:
        """Greedy answers of exactly `max_new_tokens` to all prompts, sent as one batch: `output_ids`, `meta_info`."""
        sampling = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
        body = {"input_ids": prompts, "sampling_params": sampling}
        reply = self._ask("POST", "generate", json=body, timeout=ANSWER_SECONDS)
        return reply.json()

    def counter(self, name: str) -> float | None:
        """Sum of a Prometheus counter over its series, None where the server has none of that name."""
        text = self._ask("GET", "metrics", timeout=30).text
        values = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values)) if values else None

    def info(self) -> dict:
        """The decoded reply of /server_info."""
        return self._ask("GET", "server_info", timeout=60).json()

    def profile(self, folder: Path, steps: int) -> None:
        """Let the server's own profiler write a trace of its next forward passes into a folder on its machine."""
        body = {"output_dir": str(folder), "num_steps": steps, "activities": ["CPU", "GPU"]}
        self._ask("POST", "start_profile", json=body, timeout=ANSWER_SECONDS)

    def _ask(self, method: str, path: str, **options) -> requests.Response:
        try:
            reply = requests.request(method, f"{self.url}/{path}", **options)
        except requests.RequestException as error:
            raise BenchError(f"the server of {self.name} at {self.url} does not answer: {error}") from None
        if not reply.ok:
            raise BenchError(f"the server of {self.name} answered {reply.status_code}: {reply.text[:300]}")
        return reply


class Server(Endpoint):
    """One server as a child process, which ends with this one; its output goes to `log`.

    start_s: seconds from its start until it was ready, None before.
    """

    def __init__(self, name: str, launch: Launch, port: int, log: Path) -> None:
        super().__init__(name, f"http://127.0.0.1:{port}")
        self.launch, self.log = launch, log
        self._began, self.start_s = time.monotonic(), None
        command = [sys.executable, "-m", "sglang.launch_server", *launch.flags]
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(port)],
                env={**os.environ, "HF_HUB_OFFLINE": "1", **launch.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def ready(self) -> bool:
        """Whether it serves. Raises BenchError with the end of its log when it has died."""
        if self._process.poll() is not None:
            raise BenchError(f"the server of {self.name} ended while it started; {self.log} ends with:\n{self.tail()}")
        try:
            if not requests.get(f"{self.url}/health", timeout=5).ok:
                return False
            self.start_s = self.start_s or round(time.monotonic() - self._began, 1)
            return True
        except requests.RequestException:
            return False

    def engine(self) -> dict[str, str] | None:
        """What the tree engine said about itself at start, None for a server without it."""
        found = _ENGINE.search(self.log.read_text(errors="replace"))
        return dict(pair.split("=", 1) for pair in found[1].split() if "=" in pair) if found else None

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal to the server and the processes that it started."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            self._process.poll()

    def wait(self, seconds: float) -> None:
        """Wait until the server's main process has ended, at most `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return


def _end_with_parent() -> None:
    """In the child: be killed when the benchmark is, whatever killed it, so that no server is left behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def running(launches: Mapping[str, Launch], logs: Path) -> Iterator[dict[str, Server]]:
    """Start all servers at once, give them when every one is ready, stop them all at the end. Raises as `start`."""
    servers = start(launches, logs)
    try:
        yield servers
    finally:
        stop(servers.values())


def start(launches: Mapping[str, Launch], logs: Path) -> dict[str, Server]:
    """Start all servers at once and wait until every one is ready.

    Raises BenchError when one dies or is not ready within START_SECONDS; none is left running then.
    """
    servers: dict[str, Server] = {}
    try:
        for (name, launch), port in zip(launches.items(), free_ports(len(launches)), strict=True):
            servers[name] = Server(name, launch, port, logs / f"{name.replace(':', '-')}.log")
        _await(servers.values())
    except BaseException:
        stop(servers.values())
        raise
    return servers


def stop(servers: Iterable[Server]) -> None:
    """End all servers, and what they started."""
    ending = list(servers)
    for server in ending:
        server.signal(signal.SIGTERM)
    for server in ending:
        server.wait(20)
        server.signal(signal.SIGKILL)  # also what the main process left behind
        server.wait(20)


def _await(servers) -> None:
    deadline, missing = time.monotonic() + START_SECONDS, list(servers)
    while missing:
        missing = [server for server in missing if not server.ready()]
        if missing and time.monotonic() > deadline:
            late = missing[0]
            raise BenchError(
                f"the server of {late.name} is not ready after {START_SECONDS} s: name fewer --arms, or read "
                f"{late.log}, which ends with:\n{late.tail()}"
            )
        time.sleep(0.5 if missing else 0)


def free_ports(count: int) -> list[int]:
    """Ports that are free now, and below those that the kernel hands out to connections until the servers bind them."""
    found: list[int] = []
    for port in random.sample(SERVER_PORTS, len(SERVER_PORTS)):
        if len(found) == count:
            break
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found
