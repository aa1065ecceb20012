"""Generated code is judged by what it does, and can do no harm."""

import os
import socket
import time

import pytest

from smoke_tests import grading, sandbox
from smoke_tests.pair import Task


@pytest.fixture
def run():
    try:
        sandbox.interpreter()
    except sandbox.NoSandboxError as error:
        pytest.skip(str(error))
    return sandbox.run


def test_who_and_where(run):
    assert run(sandbox.SELF_TEST).strip() == f"{sandbox.NOBODY} ['lo']"


def test_no_network(run):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        connect = f"import socket\nsocket.create_connection({address!r}, 2)\nprint('reached')"
        exec(connect.replace("print", "str"))  # It can be reached from here.
        assert run(connect) == ""


def test_no_files_of_others_and_none_written(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    secret.chmod(0o600)
    assert run(f"print(open({str(secret)!r}).read())") == ""
    tmp_path.chmod(0o777)
    written = tmp_path / "written"
    assert run(f"with open({str(written)!r}, 'w') as f: f.write('x')\nprint('written')") == ""
    assert not written.exists() or written.stat().st_size == 0


def test_limits(run):
    assert run("while True: pass") == ""
    assert run("print(len(bytearray(1 << 30)))") == ""
    assert run("import os\nfor _ in range(99): os.fork()\nprint('forked')") == ""


def test_nothing_outlives_its_time(run, monkeypatch):
    monkeypatch.setattr(sandbox, "WALL_S", 1)
    began = time.monotonic()
    assert run("import os, time\nos.setsid() if os.fork() else 0\nprint('started', flush=True)\ntime.sleep(600)") == ""
    # Its pipes are closed, so every process that held them is gone.
    assert time.monotonic() - began < 60


def test_refused_without_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    sandbox.interpreter.cache_clear()
    with pytest.raises(sandbox.NoSandboxError, match="start the suite as root"):
        sandbox.run("print(1)")


TASK = Task("Write add(a, b).", (("add(2, 3)", 5), ("add(-1, 1)", 0)))


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Sure:\n```python\ndef add(a, b):\n    return a + b\n```\nIt adds.", True),
        ("```python\ndef add(a, b):\n    return a + b\n", True),
        ("def add(a, b):\n    return a + b", True),
        ("```python\ndef add(a, b):\n    return a - b\n```", False),
        ("```python\ndef add(a, b):\n    retrun a + b\n```", False),
        ("I cannot do that.", False),
    ],
)
def test_code_is_graded(run, answer, right):
    assert grading.solved(TASK, answer) is right
