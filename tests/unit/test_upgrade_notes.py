"""The notes of an upgrade name every change that asks something of an operator, and nothing else."""

import subprocess

import pytest
import yaml

from scripts import upgrade_notes

OLD = {
    "sglang": {"default": "0.5.16", "supported": {"0.5.16": {"wheel": "a", "sha256": "1"}, "0.5.9": {"sha256": "2"}}},
    "torch": "2.13.0",
}


def files(versions: dict, **others: str) -> dict[str, str]:
    return {"versions.yaml": yaml.safe_dump(versions)} | {
        name.replace("__", "/"): text for name, text in others.items()
    }


def page(old: dict[str, str], new: dict[str, str]) -> str:
    return upgrade_notes.notes(lambda name: old.get(name, ""), lambda name: new.get(name, ""))


def test_versions_that_come_and_go_are_told():
    new = {
        "sglang": {"default": "0.5.23", "supported": {"0.5.16": {"wheel": "a", "sha256": "1"}, "0.5.23": {}}},
        "torch": "2.14.0",
    }
    said = page(files(OLD), files(new))
    assert "SGLang 0.5.23 is supported" in said
    assert "SGLang 0.5.9 is **not supported any more**" in said
    assert "sglang.default: 0.5.16 becomes 0.5.23" in said
    assert "torch: 2.13.0 becomes 2.14.0: build the image anew" in said
    assert "ansible/rollback.yml" in said


def test_a_driver_a_patch_series_and_a_unit_are_told():
    manifest = "patches/sglang_ddtree/manifests/0.5.16.json"
    group = "ansible/group_vars/sm90.yml"
    unit = "systemd/sglang@.service"
    old = files(OLD) | {manifest: "{}", group: "nvidia_driver_version: '580.95'\n", unit: "[Unit]"}
    new = files(OLD) | {manifest: '{"a": 1}', group: "nvidia_driver_version: '590.1'\n", unit: "[Unit]\n"}
    said = page(old, new)
    assert "the patch series of SGLang 0.5.16 changes" in said
    assert (
        "sm90: nvidia_driver_version 580.95 becomes 590.1: run `ansible-playbook ansible/gpu_hosts.yml` first" in said
    )
    assert "every instance is started anew" in said
    assert "## Versions" not in said


def test_without_a_change_nothing_is_asked():
    assert page(files(OLD), files(OLD)) == "Nothing that an upgrade has to know of changes.\n"


def test_an_unknown_revision_is_refused(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(upgrade_notes.NotesError, match="no-such is no revision"):
        upgrade_notes.reader(tmp_path, "no-such")


def test_a_revision_is_read_as_it_was(tmp_path):
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "a"]
    (tmp_path / "versions.yaml").write_text("torch: '1'\n")
    for arguments in (["init", "-q"], ["add", "."], commit):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True)
    (tmp_path / "versions.yaml").write_text("torch: '2'\n")
    old, new = upgrade_notes.reader(tmp_path, "HEAD"), upgrade_notes.reader(tmp_path, None)
    assert "torch: 1 becomes 2" in upgrade_notes.notes(old, new)
