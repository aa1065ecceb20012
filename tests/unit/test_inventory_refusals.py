"""A wrong inventory, or a machine without an engine, is refused in one sentence before anything is touched."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HERE = {"ansible_connection": "local"}
GENERATIONS = ("sm90", "sm100", "sm103", "sm120")
NO_ENGINE = "tcp://127.0.0.1:1"


@pytest.fixture(scope="module")
def ansible_playbook() -> str:
    tools = Path(os.environ.get("CACHE_DIR") or ROOT / ".cache") / "tools" / "bin"
    found = shutil.which("ansible-playbook", path=os.pathsep.join([str(tools), os.environ["PATH"]]))
    if found is None:
        complaint = pytest.fail if os.environ.get("CI") else pytest.skip
        complaint("ansible-playbook is missing: run make tools")
    return found


@pytest.fixture
def play(ansible_playbook, tmp_path):
    """Runs a playbook of the kit with an inventory given as groups; returns the finished process."""

    def run(groups: dict | None, playbook: str = "ansible/inventory.yml", *options: str):
        command = [ansible_playbook, playbook, *options]
        if groups is not None:
            inventory = tmp_path / "inventory.yml"
            inventory.write_text(yaml.safe_dump({"all": {"children": groups}}), encoding="utf-8")
            command += ["-i", str(inventory)]
        # Without an engine nothing can be deployed, even by a playbook that fails to refuse.
        settings = {"DOCKER_HOST": NO_ENGINE, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "LC_ALL": "C.UTF-8"}
        environment = os.environ | settings
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    return run


def hosts(*names: str, **variables) -> dict:
    return {"hosts": dict.fromkeys(names, HERE | variables)}


def instance(**keys) -> dict:
    return {"name": "one", "port": 30000} | keys


def gpu_instance(**keys) -> dict:
    return instance(pair="smollm2-135m", gpus=["0"]) | keys


def test_the_shipped_inventory_is_right(play):
    done = play(None)
    assert done.returncode == 0, done.stdout


def test_a_wrong_gpu_host_is_refused_and_its_neighbours_stay_untouched(play, tmp_path):
    pair = yaml.safe_load((ROOT / "models" / "pairs" / "smollm2-135m.yaml").read_text(encoding="utf-8"))
    del pair["engine"]["cuda"]
    (tmp_path / "smollm2-135m.yaml").write_text(yaml.safe_dump(pair), encoding="utf-8")
    twice = [gpu_instance(), gpu_instance(name="two", port=30001)]
    groups = {"cpu": hosts("here"), "sm90": hosts("hopper", sglang_instances=twice)}
    done = play(groups, "site.yml", "-e", f"_preflight_pairs_folder={tmp_path}")
    assert done.returncode != 0
    assert "hopper cannot be deployed, nothing was touched" in done.stdout
    assert "GPU 0 is in instances one and two: take it out of gpus of one of them" in done.stdout
    assert "instance two: model pair smollm2-135m is validated for cpu only" in done.stdout
    assert "PLAY [Prepare the hosts" not in done.stdout


def test_right_gpu_hosts_are_taken(play):
    groups = {name: hosts(f"{name}-host", sglang_instances=[gpu_instance()]) for name in GENERATIONS}
    spread = {"nodes": ["a", "b"], "node_interface": "eth1", "node_port": 20000, "algorithm": "ar", "pp": 2}
    groups["sm90"] = hosts("a", "b", sglang_instances=[gpu_instance(**spread)])
    done = play(groups)
    assert done.returncode == 0, done.stdout


def test_a_gpu_host_without_an_image_is_refused(play):
    host = hosts("hopper", sglang_instances=[gpu_instance()], sglang_image="")
    done = play({"sm90": host})
    assert done.returncode != 0
    assert "hopper has no image: set sglang_image in ansible/group_vars/sm90.yml" in done.stdout


def test_a_host_is_in_exactly_one_group(play):
    done = play({"cpu": hosts("both"), "sm90": hosts("both"), "other": hosts("neither")})
    assert done.returncode != 0
    assert "both is in cpu and sm90: put it into exactly one of cpu, sm90" in done.stdout
    assert "neither is in no group: put it into exactly one of cpu, sm90" in done.stdout


def test_another_machine_is_taken(play):
    done = play({"cpu": {"hosts": {"far.example.net": {}}}})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([], "here has no instance: add one to sglang_instances"),
        ([instance(), instance(name="two")], "two instances with the same port (30000, 30000): give each its own"),
        ([instance(name="Big One")], "instance name Big One cannot be used: start with a lower-case letter"),
        ([instance(port=80)], "one has port 80: set it to a number from 1024 to 65535"),
        ([instance(sglang="0.4.0")], "one wants SGLang 0.4.0: set sglang to 0.5.16 or 0.5.23"),
        ([instance(pair="gpt-2")], "one wants the model pair gpt-2: set pair to "),
        ([instance(gpus=["0"])], "one has gpus, without meaning on a CPU: leave it out, or move here to the group"),
        ([instance(budget=0)], "one has budget 0: set it to at least 1, or leave it out"),
        ([instance(draft_window=4)], "has draft_window 4, shorter than one block: set it to at least 8, or leave"),
        ([instance(tiers={1: 8, 4: "off"})], "tiers have off from 4 on: use a budget of at least 1, chain or ar"),
        ([instance(algorithm="eagle")], "value of algorithm must be one of: tree, chain, ar, got: eagle"),
        ([instance(top_p=0.9)], "sglang_resolved.top_p. Supported parameters include: algorithm"),
    ],
)
def test_a_wrong_instance_is_refused(play, instances, message):
    done = play({"cpu": hosts("here", sglang_instances=instances)})
    assert done.returncode != 0
    assert message in done.stdout


def test_a_block_beyond_the_pairs_is_taken_with_what_to_expect(play):
    longer = [instance(block_size=16, draft_window=2048), instance(name="two", port=30001, block_size=8)]
    done = play({"cpu": hosts("here", sglang_instances=longer)})
    assert done.returncode == 0, done.stdout
    assert "WARNING: instance one has block_size 16 and the model pair smollm2-135m is validated with 8" in done.stdout
    assert "WARNING: instance two" not in done.stdout


def test_a_machine_without_an_engine_is_refused(play):
    done = play(None, "site.yml")
    assert done.returncode != 0
    assert "No Docker engine answers: run scripts/docker-engine.sh as root" in done.stdout
    assert "failed=1" in done.stdout and "changed=0" in done.stdout


@pytest.mark.parametrize(
    ("keys", "mode", "variables", "message"),
    [
        ("alice " + 32 * "k", 0o644, {}, "keys can be read by others: chmod 600 it"),
        ("alice " + 32 * "k", 0o600, {}, "keys cannot be used: it has no key for router: add a line"),
        ("router " + 32 * "k", 0o600, {}, "here.pem cannot be used (Error while reading certificate file"),
        ("", 0o600, {"sglang_instances": [instance(name="v1")]}, "port or name the gateway needs (v1)"),
        ("", 0o600, {"sglang_instances": [instance(expose=True)]}, "here exposes one beside its gateway"),
    ],
)
def test_a_wrong_gateway_is_refused_without_showing_a_key(play, tmp_path, keys, mode, variables, message):
    path = tmp_path / "keys"
    path.write_text(keys, encoding="utf-8")
    path.chmod(mode)
    front = {"gateway_keys_file": str(path), "gateway_certificates": str(tmp_path)}
    done = play({"cpu": hosts("here", **front, **variables), "router": hosts("here")}, "ansible/inventory.yml", "-vvv")
    assert done.returncode != 0
    assert message in done.stdout.replace("\n", " ")
    assert 32 * "k" not in done.stdout + done.stderr


def test_a_router_needs_a_gateway(play):
    done = play({"cpu": hosts("here"), "router": hosts("here")})
    assert done.returncode != 0
    assert "here is in the group router and has no gateway" in done.stdout
