"""A server with a key: nobody is served without it, and it stands in no log and in no process's arguments."""

import time

import pytest
import requests

from tests.image.conftest import IMAGE, docker

KEY = "canary-of-the-key-test"
NAME = "sglang-ddtree-key-test"
START_SECONDS = 180


@pytest.fixture
def keyed(models, tmp_path):
    """URL of a server that was given the key in a file, as the units give it."""
    settings = tmp_path / "credentials.env"
    settings.write_text(f"API_KEY={KEY}\n")
    options = ["--detach", "--init", "--name", NAME, "--env-file", str(settings), "--env", "DDTREE_ALGORITHM=ar"]
    options += ["--read-only", "--tmpfs", "/tmp:size=1g,mode=1777", "--tmpfs", "/home/sglang:uid=10001,gid=10001"]
    code, said = docker("run", *options, "--volume", f"{models}:/models:ro", "--publish", "127.0.0.1::30000", IMAGE)
    assert code == 0, said
    try:
        yield "http://" + docker("port", NAME, "30000")[1].strip()
    finally:
        docker("rm", "--force", NAME)


def wait_until_healthy() -> None:
    deadline = time.monotonic() + START_SECONDS
    while docker("inspect", "--format", "{{.State.Health.Status}}", NAME)[1].strip() != "healthy":
        assert time.monotonic() < deadline, docker("logs", NAME)[1][-2000:]
        time.sleep(1)


def test_the_key_is_asked_for_and_shown_to_nobody(keyed):
    wait_until_healthy()  # so the health check, a completion, has the key
    body = {"text": "One, two,", "sampling_params": {"max_new_tokens": 2}}
    assert requests.post(f"{keyed}/generate", json=body, timeout=60).status_code == 401
    headers = {"Authorization": f"Bearer {KEY}"}
    assert requests.post(f"{keyed}/generate", json=body, headers=headers, timeout=60).status_code == 200
    assert "server_args=" in docker("logs", NAME)[1]
    assert KEY not in docker("logs", NAME)[1]
    code, processes = docker("top", NAME, "-eo", "pid,args")
    assert code == 0 and "launch_server" in processes
    assert KEY not in processes
