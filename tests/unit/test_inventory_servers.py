"""What the instance role starts a server with: rendered from the role's own variables, as the roll-out does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.loading import load_file

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("CACHE_DIR") or ROOT / ".cache") / "tools" / "bin"
WITHOUT_P2P = {"environment": {"NCCL_P2P_DISABLE": "1"}, "arguments": ["--disable-custom-all-reduce"]}
ON_TWO_GPUS = {
    **{"name": "chat", "port": 30000, "pair": "smollm2-135m", "sglang": "0.5.16", "algorithm": "tree"},
    **{"attention_backend": "triton", "page_size": 1, "tp": 2, "pp": 1, "ep": 1, "mem_fraction": 0.8},
    **{"dp": 1, "dp_attention": False},
    **{"gpus": ["GPU-a", "GPU-b"], "extra_args": "--log-level 'info'"},
}
gpu_settings = load_file(ROOT / "ansible" / "roles" / "instance" / "filter_plugins" / "gpu_settings.py")
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.import_role": {"name": "instance", "tasks_from": "look"}, "when": False},
            {"ansible.builtin.copy": {"dest": "{{ rendered }}", "content": "{{ _instance_content }}", "mode": "0600"}},
        ],
    }
]


@pytest.fixture
def content(tmp_path):
    """Renders what a release of an instance holds, on a host of a group."""
    if not (TOOLS / "ansible-playbook").exists():
        pytest.skip("ansible-playbook is missing: run `make tools`")

    def render(instance: dict, group: str, **variables) -> dict:
        play, inventory, rendered = (tmp_path / name for name in ("play.yml", "inventory.yml", "rendered.json"))
        play.write_text(yaml.safe_dump(PLAY), encoding="utf-8")
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory.write_text(yaml.safe_dump({group: {"hosts": {"here": local}}}), encoding="utf-8")
        known = {"kit_root": str(ROOT), "kit_cache": str(tmp_path), "kit_wheels": str(tmp_path)}
        known |= {"instance_image_id": "sha256:0", "instance_cache": "/caches"}
        settings = known | {"rendered": str(rendered), "sglang_instance": instance} | variables
        command = [TOOLS / "ansible-playbook", "-i", inventory, "-e", json.dumps(settings), play]
        environment = os.environ | {"ANSIBLE_ROLES_PATH": str(ROOT / "ansible" / "roles"), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(rendered.read_text(encoding="utf-8"))

    return render


def test_gpu_settings_and_the_probes_verdict_reach_the_server(content):
    found = content(ON_TWO_GPUS, "sm120", collective_probe_verdicts={"chat": WITHOUT_P2P, "other": {}})
    assert found["server"]["NCCL_P2P_DISABLE"] == "1"
    words = found["server"]["EXTRA_ARGS"].split()
    assert words[:6] == ["--attention-backend", "triton", "--page-size", "1", "--tp-size", "2"]
    assert not {"--dp-size", "--enable-dp-attention"} & set(words)
    assert words[-3:] == ["--disable-custom-all-reduce", "--log-level", "'info'"]
    assert found["unit"]["DEVICE_OPTIONS"] == "--device=nvidia.com/gpu=GPU-a --device=nvidia.com/gpu=GPU-b"


def test_a_good_verdict_changes_nothing(content):
    found = content(ON_TWO_GPUS, "sm120", collective_probe_verdicts={"chat": {"environment": {}, "arguments": []}})
    assert "NCCL_P2P_DISABLE" not in found["server"]
    assert "--disable-custom-all-reduce" not in found["server"]["EXTRA_ARGS"]


def test_a_host_without_gpus_gets_the_operators_arguments_alone(content):
    on_cpu = {key: ON_TWO_GPUS[key] for key in ("name", "port", "pair", "sglang", "algorithm")}
    assert "EXTRA_ARGS" not in content(on_cpu, "cpu")["server"]
    assert content(on_cpu | {"extra_args": "--a b"}, "cpu")["server"]["EXTRA_ARGS"] == "--a b"


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"dp": 2}, ["--tp-size", "1", "--pp-size", "1", "--ep-size", "1", "--dp-size", "2"]),
        ({"pp": 2}, ["--tp-size", "1", "--pp-size", "2", "--ep-size", "1"]),
        ({"tp": 2, "ep": 2}, ["--tp-size", "2", "--pp-size", "1", "--ep-size", "2"]),
        (
            {"tp": 2, "dp": 2, "dp_attention": True},
            ["--tp-size", "2", "--pp-size", "1", "--ep-size", "1", "--dp-size", "2", "--enable-dp-attention"],
        ),
    ],
)
def test_every_layout_of_a_server_without_speculation_reaches_it(layout, words):
    instance = ON_TWO_GPUS | {"algorithm": "ar", "tp": 1, "extra_args": ""} | layout
    found = gpu_settings.gpu_arguments(instance, {}).split()
    memory = ["--mem-fraction-static", "0.8"]
    assert [word for word in found[4:] if word not in memory] == words
