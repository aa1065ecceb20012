"""A GPU host from bare to ready with the real roles, and the hosts that must be refused before anything changes."""

import json

import pytest

from tests.testbed.gpu.hosts import UUIDS, Hardware

DRIVER = "580.95.05"
STATE = "find /etc /usr /lib/modules -xdev -type f -newer /root/mark | sort; dpkg -l | md5sum"
# Everything that a GPU container needs, without a registry: the host's own static shell as an image.
MAKE_IMAGE = "tar -C / -c --dereference bin/busybox | docker import - tiny >/dev/null"
IN_CONTAINER = "/bin/busybox sh /usr/bin/nvidia-smi -L"


def installed(host, pattern: str) -> dict[str, str]:
    listed = host.on(f"dpkg-query -Wf '${{db:Status-Abbrev}} ${{Package}} ${{Version}}\\n' {pattern}", check=False)
    return {row[1]: row[2] for row in map(str.split, listed.splitlines()) if row[0][1:] == "i"}


@pytest.fixture(scope="module")
def ready(gpu_host):
    """A bare HGX-like host with two cards, prepared by one run; the operator has settings of the engine already."""
    gpu_host.reset(Hardware(gpus=2, nvswitch=True))
    gpu_host.on(
        """mkdir -p /etc/docker; echo '{"features": {"buildkit": true}, "debug": true}' > /etc/docker/daemon.json"""
    )
    told = gpu_host.play("--check", gpus=2)
    assert told.returncode == 0, told.stdout
    assert "A real run installs cuda-drivers-580 580.95.05, holds it and loads it" in told.stdout
    assert installed(gpu_host, "'nvidia-*'") == {}
    done = gpu_host.play(gpus=2)
    assert done.returncode == 0, done.stdout
    return gpu_host


def test_driver_library_and_fabric_manager_are_of_one_version_though_newer_ones_are_there(ready):
    found = installed(ready, "'nvidia-*' libcuda1 'cuda-drivers-*'")
    ours = {name: version for name, version in found.items() if "container" not in name}
    assert set(ours.values()) == {f"{DRIVER}-1"}
    assert {"cuda-drivers-580", "nvidia-kernel-dkms", "libcuda1", "nvidia-fabricmanager-580"} <= set(ours)
    assert f"Kernel Module  {DRIVER}" in ready.on("cat /proc/driver/nvidia/version")
    assert ready.on("systemctl is-active nvidia-persistenced nvidia-fabricmanager").split() == ["active"] * 2


def test_an_upgrade_of_everything_leaves_driver_and_toolkit_alone(ready):
    before = installed(ready, "'nvidia-*' 'libnvidia-*' libcuda1")
    ready.on("apt-get --yes dist-upgrade")
    assert installed(ready, "'nvidia-*' 'libnvidia-*' libcuda1") == before
    denied = ready.on("apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert all(f'"{prefix}"' in denied for prefix in ("nvidia-", "libnvidia-", "cuda-", "nvidia-container-toolkit"))


def test_the_host_was_rebooted_with_nouveau_kept_away(ready):
    assert ready.on("ls -d /sys/bus/pci/devices/*/driver", check=False) == ""
    assert "blacklist nouveau" in ready.on("cat /etc/modprobe.d/nvidia-nouveau.conf")


def test_the_toolkit_comes_in_lock_step_and_its_spec_names_each_card_twice(ready):
    found = installed(ready, "'nvidia-container*' 'libnvidia-container*'")
    assert len(found) == 4
    assert set(found.values()) == {"1.18.2-1"}
    spec = ready.on("cat /etc/cdi/nvidia.yaml")
    assert all(f'name: "{name}"' in spec for name in ("0", "1", *UUIDS[:2]))


def test_the_operators_settings_of_the_engine_stay(ready):
    settings = json.loads(ready.on("cat /etc/docker/daemon.json"))
    assert settings["debug"] is True
    assert settings["features"] == {"buildkit": True, "cdi": True}


def test_a_container_sees_its_card_alone_and_keeps_it_through_a_daemon_reload(ready):
    ready.on(MAKE_IMAGE)
    device = f"--device=nvidia.com/gpu={UUIDS[1]}"
    ready.on(f"docker run --detach --name one {device} tiny /bin/busybox sleep 600")
    try:
        assert ready.on(f"docker exec one {IN_CONTAINER}").count("GPU ") == 1
        ready.on("systemctl daemon-reload")
        assert UUIDS[1] in ready.on(f"docker exec one {IN_CONTAINER}")
        ready.on("docker exec one /bin/busybox head -c0 /dev/nvidia1")
    finally:
        ready.on("docker rm --force one")


def test_an_image_with_other_labels_than_the_inventory_is_refused(ready):
    labels = 'LABEL ddtree.cuda.compute_capabilities="9.0" ddtree.cuda.version="{cuda}" ddtree.cuda.compat_driver=""'
    for cuda, right in {"13.0": True, "12.9": False}.items():
        ready.on(f"tar -C / -c bin/busybox | docker import --change '{labels.format(cuda=cuda)}' - labelled-{cuda}")
        done = ready.role("preflight", "gpu_image", preflight_image=f"labelled-{cuda}")
        assert (done.returncode == 0) is right, done.stdout
    assert "set sglang_image and gpu_image to the same build" in done.stdout


def test_a_collective_verdict_is_recorded_and_holds_until_something_changes(ready):
    arms = {name: {"outcome": "pass", "detail": "", "gb_per_s": 380.0} for name in ("p2p", "no_p2p")}
    told = json.dumps({"ranks": 2, "backend": "nccl", "arms": arms})
    # In the place of an engine's image: an interpreter that tells a result.
    ready.on(
        f"mkdir -p /tmp/image/bin && cd /tmp/image && cp /bin/busybox bin && echo '{told}' > told.json"
        " && printf '#!/bin/busybox sh\\n/bin/busybox cat /told.json\\n' > bin/python3 && chmod 0755 bin/python3"
        " && tar -c . | docker import - probed >/dev/null"
    )
    facts = {
        "driver": {"version": DRIVER},
        "kernel": {"release": "6.12", "cmdline": "quiet"},
        "pci": {"nvswitch": True, "iommu_translated": [], "acs_redirect": []},
    }
    instance = {"name": "one", "gpus": list(UUIDS[:2]), "shm_gib": 1}
    variables = {"sglang_instance": instance, "preflight_gpu_host": facts, "collective_probe_image": "probed"}
    variables["kit_state"] = "/var/lib/sglang-ddtree"
    record = "cat /var/lib/sglang-ddtree/collectives/one.json"
    for change, asked_anew in (({}, True), ({}, False), ({"kernel": {"release": "6.13", "cmdline": ""}}, True)):
        done = ready.role("collective_probe", **variables | {"preflight_gpu_host": facts | change})
        assert done.returncode == 0, done.stdout
        assert "direct transfers work at 380.0 GB/s" in done.stdout
        assert ("CHANGED" in done.stdout) is asked_anew
    kept = json.loads(ready.on(record))
    assert (kept["verdict"]["verdict"], kept["key"]["kernel"]) == ("p2p", "6.13")
    assert kept["result"]["arms"]["no_p2p"]["gb_per_s"] == 380.0


def test_a_second_run_changes_nothing_and_reboots_nothing(ready):
    started = ready.on("systemctl show --property=UserspaceTimestamp --value")
    done = ready.play(gpus=2)
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout
    assert ready.on("systemctl show --property=UserspaceTimestamp --value") == started


def test_a_changed_set_of_cards_gives_a_new_spec(ready):
    ready.on("sed -i 2d /etc/hardware/gpus.csv && rm -r /sys/bus/pci/devices/0000:02:00.0 /dev/nvidia1")
    done = ready.play(gpus=1)
    assert done.returncode == 0, done.stdout
    assert UUIDS[1] not in ready.on("cat /etc/cdi/nvidia.yaml")


@pytest.mark.parametrize(
    ("hardware", "variables", "message"),
    [
        (Hardware(secure_boot=True), {}, "has Secure Boot on and no enrolled key for modules built there"),
        (Hardware(), {"container_toolkit_version": "1.19.1"}, "container toolkit 1.19.1 breaks CUDA initialisation"),
        (Hardware(), {"nvidia_driver_version": "570.133.20"}, "too old for an image with CUDA 13.0"),
    ],
)
def test_what_cannot_work_is_refused_on_a_bare_host(gpu_host, hardware, variables, message):
    gpu_host.reset(hardware)
    gpu_host.on("touch /root/mark; sleep 1")
    before = gpu_host.on(STATE)
    done = gpu_host.play(**variables)
    assert done.returncode != 0
    assert message in done.stdout
    assert "nothing was touched" in done.stdout
    # The Docker engine's settings come before the driver's checks; nothing of NVIDIA does.
    after = gpu_host.on(STATE).replace("/etc/docker/daemon.json\n", "")
    assert after == before


def test_cards_out_of_the_drivers_reach_are_told(gpu_host):
    gpu_host.reset(Hardware(gpus=1, hidden=1))
    done = gpu_host.play()
    assert done.returncode != 0
    assert "2 NVIDIA GPUs are on the PCI bus and nvidia-smi lists 1: switch on Above 4G Decoding" in done.stdout
    # On PCI Express without a switch nothing asks for the fabric manager, and it is not there.
    assert installed(gpu_host, "'nvidia-fabricmanager*'") == {}
