"""`ansible-playbook site.yml` on a machine whose process 1 is not systemd: Compose supervises, the same gate judges."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.image.conftest import CACHE, ROOT, docker

pytestmark = pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd supervises here, not Compose")
OURS = {"name": os.environ.get("COMPOSE_PROJECT_NAME", "sglang-ddtree"), "port": int(os.environ.get("PORT", "30000"))}
SECOND = {"name": "ddtree-test-second", "port": 30056, "algorithm": "ar"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Runs the playbook with these instances; answers how many tasks changed something, and what is on record."""
    state = tmp_path_factory.mktemp("state")
    environment = os.environ | {"XDG_STATE_HOME": str(state), "CACHE_DIR": str(CACHE), "ANSIBLE_NOCOLOR": "1"}

    def play(*instances: dict) -> tuple[int, set[str]]:
        command = [CACHE / "tools" / "bin" / "ansible-playbook", "site.yml"]
        command += ["-e", json.dumps({"sglang_instances": instances})]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:]
        records = {path.stem for path in (state / "sglang-ddtree").glob("*.json")}
        changed = re.search(r"changed=(\d+)", done.stdout.split("PLAY RECAP")[-1])
        return int(changed[1]), {name for name in records if not name.endswith("-smoke")}

    return play


def test_a_running_demo_is_proved_and_recorded_once(site):
    container = docker("compose", "ps", "--quiet", "sglang")[1]
    changed, records = site(OURS)
    assert changed > 0 and records == {OURS["name"]}
    began = time.monotonic()
    assert site(OURS) == (0, {OURS["name"]})
    print(f"an unchanged run in {time.monotonic() - began:.0f} s")
    assert docker("compose", "ps", "--quiet", "sglang")[1] == container


@pytest.mark.skipif(os.environ.get("ENGINE_FULL") != "1", reason="starts a second server: run `make test-full`")
def test_an_instance_that_is_not_named_any_more_is_removed(site):
    assert site(OURS, SECOND)[1] == {OURS["name"], SECOND["name"]}
    try:
        changed, records = site(OURS)
        assert changed > 0 and records == {OURS["name"]}
        left = docker("ps", "--all", "--quiet", f"--filter=label=com.docker.compose.project={SECOND['name']}")[1]
        assert not left.strip()
        assert site(OURS)[0] == 0
    finally:
        docker("compose", "--project-name", SECOND["name"], "down", "--volumes")
