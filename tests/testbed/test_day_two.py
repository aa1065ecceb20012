"""A host's state out and back, nothing left behind, and a bug report without secrets."""

from __future__ import annotations

import shutil
import subprocess
import tarfile

import pytest

from tests.testbed.hosts import cache

pytestmark = pytest.mark.slow

STATE = "/var/lib/sglang-ddtree"
#: Anything of the kit by its name; the log of what was done stays in the journal.
TRACES = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /var/log -o -path /var/cache -o -path /tmp \\) -prune"
    " -o \\( -iname '*sglang*' -o -iname '*ddtree*' \\) -print; grep -rIl -e sglang -e ddtree /etc; "
    "systemctl list-units --all --no-legend 'sglang*'; docker ps --all --quiet; docker image ls --quiet;"
    " docker volume ls --quiet"
)
CANARIES = {
    "api key": "canary-of-the-api-key",
    "unit": "canary-of-the-unit",
    "journal": "canary-of-the-journal",
    "proxy": "canary-of-the-proxy",
    "prompt": "canary-of-a-prompt",
    "container": "canary-of-the-container",
}


def play(fleet, playbook: str, *arguments: str, **variables) -> subprocess.CompletedProcess:
    done = fleet.play(playbook, *arguments, **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done


def plant(on, host: str) -> None:
    """Put a secret wherever the bundle looks."""
    on(host, f"umask 077; echo '{CANARIES['api key']}' > /root/api-key")
    secrets = f"Environment=HF_TOKEN={CANARIES['unit']} https_proxy=http://u:{CANARIES['proxy']}@p:3128"
    request = f"Receive: obj=GenerateReqInput(text='{CANARIES['prompt']}')"
    lines = [f'ExecStart=/bin/echo "{text}"' for text in (request, f"Authorization: Bearer {CANARIES['journal']}")]
    write(on, host, "sglang@", secrets)
    write(on, host, "sglang-fallback@", "ExecStart=", *lines)
    on(host, "systemctl daemon-reload; systemctl start sglang-fallback@sglang-ddtree")
    image = on(host, "docker inspect --format '{{.Image}}' sglang-sglang-ddtree")
    canary = f"--name sglang-canary --env API_KEY={CANARIES['container']} --entrypoint sleep {image} 600"
    on(host, f"mkdir -p {STATE}/instances/canary; docker run --detach {canary}")


def write(on, host: str, unit: str, *lines: str) -> None:
    text = "\n".join(["[Service]", *lines])
    folder = f"/etc/systemd/system/{unit}.service.d"
    on(host, f"mkdir -p {folder}; cat > {folder}/canary.conf <<'END'\n{text}\nEND")


def pull_up(on, host: str) -> None:
    on(host, "rm -r /etc/systemd/system/sglang*.d; systemctl daemon-reload; docker rm --force sglang-canary")
    on(host, f"rm -r /root/api-key {STATE}/instances/canary")


def test_a_support_bundle_tells_much_and_no_secret(serving):
    host = serving.names[2]
    plant(serving.testbed.on, host)
    instances = [{"name": "sglang-ddtree", "port": 30000, "api_key_file": "/root/api-key"}]
    shutil.rmtree(cache() / "support", ignore_errors=True)
    try:
        done = play(serving, "ansible/support_bundle.yml", "--limit", host, "-vvv", sglang_instances=instances)
    finally:
        pull_up(serving.testbed.on, host)
    file = cache() / "support" / f"{host}.tar.gz"
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        texts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
    assert not {(what, name) for what, word in CANARIES.items() for name, text in texts.items() if word in text}
    assert not any(word in done.stdout + done.stderr for word in CANARIES.values())
    # What stands in their place shows that they were looked at.
    assert "HF_TOKEN=[removed]" in texts["instances/sglang-ddtree/unit.txt"]
    assert "http://[removed]@p:3128" in texts["instances/sglang-ddtree/unit.txt"]
    assert "[removed]: a request" in texts["instances/sglang-ddtree/fall-back.txt"]
    assert "Authorization: [removed]" in texts["instances/sglang-ddtree/fall-back.txt"]
    assert "API_KEY=[removed]" in texts["instances/canary/container.json"]
    assert '"verdict": "pass"' in texts["state/sglang-ddtree.json"]
    assert "serve: no fault, tree" in texts["instances/sglang-ddtree/log.txt"]
    assert "deploy sglang-ddtree" in texts["state/audit.log"]


def test_a_host_that_lost_everything_comes_back_with_its_records(serving, versions):
    host, inventory = serving.names[2], serving.testbed.folder / "monitoring.yml"
    release, audit = serving.release(host), serving.audit(host)
    folder = cache() / "testbed" / "backups"
    shutil.rmtree(folder, ignore_errors=True)
    play(serving, "ansible/backup.yml", "--limit", host, backup_folder=str(folder))
    (file,) = folder.glob(f"{host}-*.tar.gz")
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        kept = {name.removeprefix(f"{STATE[1:]}/").split("/")[0] for name in archive.getnames()}
    assert {"audit.log", "instances", "sglang-ddtree.json"} <= kept
    assert not kept & {"models", "images", "wheels"}

    refused = serving.play("ansible/restore.yml", "--limit", host, restore_from=str(file))
    assert refused.returncode != 0
    assert "has records in /var/lib/sglang-ddtree" in refused.stdout
    refused = serving.play("ansible/uninstall.yml", "--limit", host)
    assert refused.returncode != 0
    assert f"Everything of the kit would leave {host}" in refused.stdout
    assert serving.release(host) == release

    if inventory.exists():
        play(serving, "ansible/monitoring.yml", "-i", str(inventory))
    play(serving, "ansible/uninstall.yml", "--limit", host, uninstall=host)
    assert serving.testbed.on(host, TRACES) == ""
    assert "prometheus" not in serving.testbed.on(host, "cat /etc/passwd; dpkg-query --show; ls /etc /var/lib")

    play(serving, "ansible/restore.yml", "--limit", host, restore_from=str(file))
    assert serving.audit(host) == audit
    # No release may be gone back to whose image went with the host.
    assert not serving.testbed.on(host, f"find {STATE} -name passed.json")
    done = serving.deploy(versions["good"], "--limit", host)
    assert done.returncode == 0, done.stdout[-3000:]
    assert serving.serves(host, versions["good"])
    assert serving.audit(host)[: len(audit)] == audit
