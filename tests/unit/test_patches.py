"""The patch series reaches an installed SGLang whole and exact, or not at all."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PATCHES = Path(__file__).resolve().parents[2] / "patches"
pytestmark = pytest.mark.skipif(find_spec("sglang") is None, reason="needs an installed, patched SGLang")


@pytest.fixture
def kit(tmp_path):
    """A copy of the patches folder and of the files it touches, the latter as the wheel has them."""
    from sglang_ddtree import compat

    patches = tmp_path / "patches"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(PATCHES, patches, ignore=ignore)
    site = tmp_path / "site"
    (site / f"sglang-{compat.SGLANG}.dist-info").mkdir(parents=True)
    manifest = json.loads((PATCHES / "sglang_ddtree" / "manifests" / f"{compat.SGLANG}.json").read_text())
    installed = Path(find_spec("sglang").origin).parent.parent
    for name in manifest["files"]:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(installed / name, site / name)
    for patch in reversed(list(manifest["patches"])):
        command = ["patch", "-R", "-p1", "--fuzz=0", "--batch", "-i", str(patches / compat.SGLANG / patch)]
        subprocess.run(command, cwd=site, check=True, capture_output=True)
    return patches, site, patches / compat.SGLANG


def run(kit, *flags):
    patches, site, _ = kit
    command = [sys.executable, str(patches / "apply.py"), "--site", str(site), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip()


def contents(site):
    return {p.relative_to(site): p.read_bytes() for p in sorted(site.rglob("*.py"))}


def test_the_series_applies_and_a_second_run_changes_nothing(kit):
    code, said = run(kit)
    assert code == 0 and "applied" in said
    after = contents(kit[1])
    assert run(kit) == (0, said.split(":")[0] + f" is patched already ({len(list(kit[2].glob('*.patch')))} patches)")
    assert contents(kit[1]) == after


def test_a_patch_taken_out_of_the_series_and_the_folder_is_named(kit):
    folder = kit[2]
    before = contents(kit[1])
    first, *rest = (folder / "series").read_text().split()
    (folder / "series").write_text("\n".join(rest))
    (folder / first).unlink()
    code, said = run(kit)
    assert code == 1 and first in said and "missing from the series" in said
    assert contents(kit[1]) == before


def test_a_patch_file_that_the_series_does_not_name_is_named(kit):
    (kit[2] / "stray.patch").write_text("")
    code, said = run(kit)
    assert code == 1 and "stray.patch" in said


def test_a_changed_patch_is_named(kit):
    path = next(iter(sorted(kit[2].glob("*.patch"))))
    path.write_text(path.read_text().replace("Origin: ", "Origin:  "))
    code, said = run(kit)
    assert code == 1 and path.name in said


def test_another_upstream_file_is_refused_before_anything_changes(kit):
    victim = next(iter(sorted(kit[1].rglob("*.py"))))
    victim.write_text(victim.read_text() + "\n# edited\n")
    before = contents(kit[1])
    code, said = run(kit)
    assert code == 1 and victim.name in said and "reinstall" in said
    assert contents(kit[1]) == before


def test_a_hunk_that_does_not_apply_names_the_patch_and_its_end(kit):
    victim = next(iter(sorted(kit[1].rglob("*.py"))))
    victim.write_text("nothing of the original\n")
    code, said = run(kit, "--refresh")
    assert code == 1 and ".patch does not apply" in said and "drop it when" in said


def test_every_patch_states_what_it_is(kit):
    wanted = ("Description:", "Origin:", "Forwarded:", "Applies-To:", "Drop-When:")
    for patch in PATCHES.glob("*/*.patch"):
        head = patch.read_text().split("\n--- ")[0]
        assert not [field for field in wanted if field not in head], patch


def test_the_installed_files_pass_the_self_check():
    from sglang_ddtree import selfcheck

    assert len(selfcheck.check_patches()) == 12


def test_a_changed_byte_ends_the_start(monkeypatch, tmp_path):
    from sglang_ddtree import selfcheck

    manifest = selfcheck.load_manifest()
    name = next(iter(manifest["files"]))
    manifest["files"][name] = {"before": "0" * 64, "after": "1" * 64}
    monkeypatch.setattr(selfcheck, "load_manifest", lambda: manifest)
    with pytest.raises(SystemExit, match=name):
        selfcheck.check_patches()
