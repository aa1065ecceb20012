"""A host's state out and back, nothing left behind, and a bug report without secrets."""

from __future__ import annotations

import shutil
import tarfile

from tests.testbed.hosts import cache

GATEWAY = "/etc/sglang-ddtree/gateway"
STATE = "/var/lib/sglang-ddtree"
#: Anything of the kit by its name; the log of what was done stays in the journal.
TRACES = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /var/log -o -path /var/cache -o -path /tmp \\) -prune"
    " -o \\( -iname '*sglang*' -o -iname '*ddtree*' \\) -print; grep -rIl -e sglang -e ddtree /etc; "
    "systemctl list-units --all --no-legend 'sglang*'; docker ps --all --quiet; docker image ls --quiet;"
    " docker volume ls --quiet"
)
OUTSIDE = "ss -Hltn | grep -v ' 127[.]'"
CANARIES = {
    "unit": "canary-of-the-unit",
    "journal": "canary-of-the-journal",
    "proxy": "canary-of-the-proxy",
    "prompt": "canary-of-a-prompt",
    "container": "canary-of-the-container",
}


def play(fleet, playbook: str, *arguments: str, **variables) -> None:
    done = fleet.play(playbook, *arguments, **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def assert_nothing_is_left(fleet, host: str) -> None:
    assert fleet.on(host, TRACES) == ""
    left = fleet.on(host, "cat /etc/passwd; dpkg-query --show; ls /etc /var/lib /var/log")
    assert not {word for word in ("prometheus", "haproxy") if word in left}
    assert {line.split()[3].rpartition(":")[2] for line in fleet.on(host, OUTSIDE).splitlines()} == {"22"}


def plant(on, host: str) -> None:
    """Put a secret wherever the bundle looks."""
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
    on(host, f"rm -r {STATE}/instances/canary")


def test_a_support_bundle_tells_much_and_no_secret(operated):
    host = operated.first
    plant(operated.on, host)
    shutil.rmtree(cache() / "support", ignore_errors=True)
    try:
        play(operated, "ansible/support_bundle.yml", "--limit", host, "-vvv")
    finally:
        pull_up(operated.on, host)
    file = cache() / "support" / f"{host}.tar.gz"
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        texts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
    words = [*CANARIES.values(), *operated.secrets()]
    assert not {(word, name) for word in words for name, text in texts.items() if word in text}
    assert not {word for word in words if word in operated.said}
    # What stands in their place shows that they were looked at.
    assert "HF_TOKEN=[removed]" in texts["instances/sglang-ddtree/unit.txt"]
    assert "http://[removed]@p:3128" in texts["instances/sglang-ddtree/unit.txt"]
    assert "[removed]: a request" in texts["instances/sglang-ddtree/fall-back.txt"]
    assert "Authorization: [removed]" in texts["instances/sglang-ddtree/fall-back.txt"]
    assert "API_KEY=[removed]" in texts["instances/canary/container.json"]
    assert '"verdict": "pass"' in texts["state/sglang-ddtree.json"]
    assert "serve: no fault, tree" in texts["instances/sglang-ddtree/log.txt"]
    assert "deploy sglang-ddtree" in texts["state/audit.log"]


def test_a_host_that_lost_everything_comes_back_with_its_records(operated):
    host, client = operated.names[2], operated.client()
    release, audit = operated.release(host), operated.audit(host)
    folder = cache() / "testbed" / "backups"
    shutil.rmtree(folder, ignore_errors=True)
    play(operated, "ansible/backup.yml", "--limit", host, backup_folder=str(folder))
    (file,) = folder.glob(f"{host}-*.tar.gz")
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        kept = {name.removeprefix(f"{STATE[1:]}/").split("/")[0] for name in archive.getnames()}
    assert {"audit.log", "instances", "sglang-ddtree.json"} <= kept
    assert not kept & {"models", "images", "wheels"}

    refused = operated.play("ansible/restore.yml", "--limit", host, restore_from=str(file))
    assert refused.returncode != 0
    assert "has records in /var/lib/sglang-ddtree" in refused.stdout
    refused = operated.play("ansible/uninstall.yml", "--limit", host)
    assert refused.returncode != 0
    assert f"Everything of the kit would leave {host}" in refused.stdout
    assert operated.release(host) == release

    with client.load(clients=2, least=20):
        play(operated, "ansible/uninstall.yml", "--limit", host, uninstall=host)
    assert not client.failures, client.failures[:5]
    assert set(operated.workers()) == set(operated.names) - {host}
    assert_nothing_is_left(operated, host)

    play(operated, "ansible/restore.yml", "--limit", host, restore_from=str(file))
    assert operated.audit(host) == audit
    # No release may be gone back to whose image went with the host.
    assert not operated.on(host, f"find {STATE} -name passed.json")
    done = operated.deploy(operated.version, "--limit", host)
    assert done.returncode == 0, done.stdout[-3000:]
    assert operated.release(host) == operated.release(host, "good") == release
    assert operated.all_work()
    assert operated.audit(host)[: len(audit)] == audit


def test_a_fleet_without_gateways_has_none_left(operated, fleet):
    done = fleet.deploy(operated.version)
    assert done.returncode == 0, done.stdout[-3000:]
    for name in fleet.names:
        assert not operated.on(name, f"ls {GATEWAY} 2>/dev/null; ss -Hltn | grep -E ':(8443|850.) '", check=False)
        fleet.ask(name)


def test_a_fleet_without_the_kit_has_nothing_of_it_left(operated):
    play(operated, "ansible/uninstall.yml", uninstall=",".join(operated.names))
    for name in operated.names:
        assert_nothing_is_left(operated, name)
