#!/usr/bin/env python3
"""Run the smoke tests from this machine against a port of a host's loopback interface.

    smoke.py --port 30000 [--ssh 'ssh -l ops host'] [--key] -- ARGUMENTS OF PYTEST ...

With --ssh the port is reached through a tunnel, so that nothing has to be installed or opened on the host. With --key
the server's API key comes on standard input. The exit code is that of pytest; 2, for no verdict, when there is no
tunnel.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

NO_VERDICT = 2
TUNNEL_S = 30


class TunnelError(Exception):
    """One sentence that says why the host's port cannot be reached."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def tunnel(ssh: list[str], port: int) -> Iterator[int]:
    """A local port that leads to `port` on the host's loopback interface.

    Raises TunnelError with what ssh said when it does not stand after TUNNEL_S seconds.
    """
    local = free_port()
    # The host is the last word; a connection that others share would survive this process.
    options = ["-N", "-L", f"127.0.0.1:{local}:127.0.0.1:{port}", "-o", "ExitOnForwardFailure=yes"]
    options += ["-o", "ControlPath=none", "-o", "ServerAliveInterval=15"]
    command = [*ssh[:-1], *options, ssh[-1]]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(local, process)
        yield local
    finally:
        process.terminate()
        process.wait()


def wait_for(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + TUNNEL_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = process.stderr.read().strip()
            raise TunnelError(f"no ssh tunnel to the host ({said}): {shlex.join(process.args)}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TunnelError(f"no ssh tunnel to the host after {TUNNEL_S} s: {shlex.join(process.args)}")


def run_pytest(port: int, key: str, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--base-url=http://127.0.0.1:{port}"]
    # Readable by this user alone, and gone at the end.
    with tempfile.NamedTemporaryFile("w") as key_file:
        if key:
            key_file.write(key)
            key_file.flush()
            command.append(f"--api-key-file={key_file.name}")
        # In another language or encoding of the caller's the reports would differ.
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        return subprocess.run(command + arguments, env=environment, stdin=subprocess.DEVNULL).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="the server's port on the host's loopback interface")
    parser.add_argument("--ssh", type=shlex.split, default=[], help="command that logs in to the host")
    parser.add_argument("--key", action=argparse.BooleanOptionalAction, help="read the API key from standard input")
    parser.add_argument("arguments", nargs="+", help="arguments of pytest")
    options = parser.parse_args()
    key = sys.stdin.read().strip() if options.key else ""
    if not options.ssh:
        return run_pytest(options.port, key, options.arguments)
    try:
        with tunnel(options.ssh, options.port) as local:
            return run_pytest(local, key, options.arguments)
    except TunnelError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return NO_VERDICT


if __name__ == "__main__":
    sys.exit(main())
