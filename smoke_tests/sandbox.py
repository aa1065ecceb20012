"""Runs generated Python code as nobody, without network, with tight limits, in a process space of its own."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import subprocess
import sys

NOBODY = 65534
WALL_S = 10
LIMITS = {
    resource.RLIMIT_CPU: 5,
    resource.RLIMIT_AS: 512 << 20,
    # No byte can be written to a file; pipes are none.
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NPROC: 16,
    resource.RLIMIT_NOFILE: 64,
    resource.RLIMIT_CORE: 0,
}
# The first process of a new process space takes all others with it when it ends, and it ends with its parent. It stays
# root for that: who changes its user loses the signal that a parent's death sends.
ISOLATE = ["unshare", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--"]
FIRST = ["sh", "-c", '"$@"; exit $?', "sh"]
DROP = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
# What must hold before any generated code is run.
SELF_TEST = "import os, socket; print(os.getuid(), [name for _, name in socket.if_nameindex()])"
SELF_TEST_OUTPUT = f"{NOBODY} ['lo']"


class NoSandboxError(Exception):
    """One sentence: why generated code cannot be run safely here."""


def run(code: str) -> str:
    """What `code` prints, in at most WALL_S seconds; empty when it fails, is killed or exceeds a limit.

    Raises NoSandboxError where the sandbox cannot be had; nothing has been run then.
    """
    return _run(interpreter(), code)


@functools.cache
def interpreter() -> str:
    """A Python that nobody can start inside the sandbox. Raises NoSandboxError."""
    if os.geteuid() != 0:
        raise NoSandboxError("generated code is run only as nobody: start the suite as root")
    missing = [tool for tool in (ISOLATE[0], DROP[0]) if shutil.which(tool) is None]
    if missing:
        raise NoSandboxError(f"generated code needs {' and '.join(missing)} of util-linux: install it")
    # The running interpreter may lie in a home folder, where nobody cannot go.
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if _run(python, SELF_TEST).strip() == SELF_TEST_OUTPUT:
            return python
    raise NoSandboxError("no Python starts as nobody in a network space of its own: allow unshare, install python3")


def _run(python: str, code: str) -> str:
    process = subprocess.Popen(
        [*ISOLATE, *FIRST, *DROP, python, "-I", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        preexec_fn=_limit,
    )
    try:
        output, _ = process.communicate(code.encode(), timeout=WALL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ""
    return output.decode(errors="replace") if process.returncode == 0 else ""


def _limit() -> None:
    for limit, value in LIMITS.items():
        resource.setrlimit(limit, (value, value))
