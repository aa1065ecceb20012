"""A roll-out from a bundle is refused in one sentence when the bundle is not named, not its maker's, or not enough."""

import subprocess

import pytest

from bundle import seal
from tests.unit.test_inventory_refusals import ansible_playbook, hosts, play  # noqa: F401

CPU = {"cpu": hosts("one")}


@pytest.fixture
def bundle(tmp_path):
    """A signed bundle of one image and no pair, and the options that name it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    (tmp_path / "signers").write_text(f"maker {(tmp_path / 'key.pub').read_text()}")
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "kit.tar").write_bytes(b"kit")
    image = {"sglang-ddtree:cpu-0.5.16": {"file": "images/cpu.tar", "id": "sha256:0"}}
    seal.seal(folder, {"images": image, "pairs": {"other": {}}, "packages": {}}, tmp_path / "key")
    names = ["offline=true", f"bundle_dir={folder}", f"bundle_signers={tmp_path / 'signers'}"]
    return folder, [word for name in names for word in ("-e", name)]


def test_a_bundle_must_be_named(play):  # noqa: F811
    done = play(CPU, "ansible/inventory.yml", "-e", "offline=true", "-e", "bundle_signers=none")
    assert done.returncode != 0 and "add -e bundle_dir=FOLDER" in done.stdout


def test_a_changed_bundle_is_refused(play, bundle):  # noqa: F811
    (bundle[0] / "kit.tar").write_bytes(b"kid")
    done = play(CPU, "ansible/inventory.yml", *bundle[1])
    assert done.returncode != 0 and "kit.tar is not what maker signed" in done.stdout


def test_a_bundle_must_hold_what_is_asked_for(play, bundle):  # noqa: F811
    done = play(CPU, "ansible/inventory.yml", *bundle[1])
    assert done.returncode != 0
    assert "wants the pair smollm2-135m, the bundle holds other" in done.stdout
