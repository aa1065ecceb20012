"""A bundle is used only as its maker signed it: a changed byte, a missing or added file and another key are named."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bundle import ROOT, images, packages, seal
from bundle.__main__ import main
from bundle.errors import BundleError

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def make_key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
    return path


@pytest.fixture
def maker(tmp_path):
    """Key of the maker, and the file by which others know it."""
    key = make_key(tmp_path, "maker")
    signers = tmp_path / "signers"
    signers.write_text(f"maker@example.net {key.with_suffix('.pub').read_text()}")
    return key, signers


@pytest.fixture
def bundle(tmp_path, maker):
    folder = tmp_path / "bundle"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "cpu.tar").write_bytes(b"image")
    (folder / "kit.tar").write_bytes(b"kit")
    seal.seal(folder, {"images": {}}, maker[0])
    return folder


def verify(bundle: Path, signers: Path) -> tuple[int, str]:
    done = subprocess.run([ROOT / "bundle" / "verify", bundle, signers], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_what_the_maker_signed_is_accepted(bundle, maker):
    assert verify(bundle, maker[1]) == (0, "bundle: 3 files, signed by maker@example.net\n")


def change_byte(bundle):
    (bundle / "images/cpu.tar").write_bytes(b"imagf")


def change_list(bundle):
    change_byte(bundle)
    digest = subprocess.check_output(["sha256sum", "images/cpu.tar"], cwd=bundle, text=True)
    lines = (bundle / "SHA256SUMS").read_text().splitlines()
    lines = [digest.strip() if line.endswith("images/cpu.tar") else line for line in lines]
    (bundle / "SHA256SUMS").write_text("\n".join(lines) + "\n")


FAULTS = {
    "changed byte": (change_byte, "images/cpu.tar is not what maker@example.net signed"),
    "changed list": (change_list, "SHA256SUMS was changed after maker@example.net signed it"),
    "missing file": (lambda folder: (folder / "kit.tar").unlink(), "lacks kit.tar: copy the whole bundle again"),
    "added file": (lambda folder: (folder / "more.py").touch(), "holds more.py, which its maker did not sign"),
    "added link": (lambda folder: (folder / "link").symlink_to("/etc/passwd"), "holds link, which its maker"),
    "no signature": (lambda folder: (folder / "SHA256SUMS.sig").unlink(), "has no SHA256SUMS.sig"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_bundle_is_refused_by_name(bundle, maker, name):
    damage, message = FAULTS[name]
    damage(bundle)
    code, said = verify(bundle, maker[1])
    assert code == 1 and message in said, said


def test_another_key_is_refused(bundle, tmp_path):
    other = make_key(tmp_path, "other")
    signers = tmp_path / "others"
    signers.write_text(f"other@example.net {other.with_suffix('.pub').read_text()}")
    code, said = verify(bundle, signers)
    assert code == 1 and f"signed with a key that {signers} does not name" in said


def test_a_bundle_does_not_vouch_for_itself(bundle, maker):
    shutil.copy(maker[1], bundle / "signers")
    code, said = verify(bundle, bundle / "signers")
    assert code == 1 and "must not vouch for itself" in said


def test_a_key_for_another_purpose_is_refused(bundle, maker):
    with (bundle / "SHA256SUMS").open("rb") as signed, (bundle / "SHA256SUMS.sig").open("wb") as signature:
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", maker[0], "-n", "git"], stdin=signed, stdout=signature)
    code, said = verify(bundle, maker[1])
    assert code == 1 and "was changed after" in said


def test_a_key_that_cannot_sign_is_refused_before_any_work(tmp_path, capsys):
    assert main(["--key", str(tmp_path / "none"), "--output", str(tmp_path / "new")]) == 1
    assert f"--key {tmp_path / 'none'} cannot sign" in capsys.readouterr().err
    assert not (tmp_path / "new.part").exists()


def test_a_folder_that_is_there_is_not_overwritten(bundle, maker, capsys):
    assert main(["--key", str(maker[0]), "--output", str(bundle)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert verify(bundle, maker[1])[0] == 0


def test_an_archive_without_an_image_is_refused(tmp_path):
    (tmp_path / "no.tar").write_bytes(b"nothing")
    with pytest.raises(BundleError, match="no archive of one image"):
        images.image_id(tmp_path / "no.tar")


def test_the_index_of_a_repository_is_read():
    text = "Package: docker.io\nArchitecture: amd64\nVersion: 20.10.24+dfsg1-1\nDescription: x\n more: text\n\n"
    assert packages.versions(text * 2) == {"docker.io": "20.10.24+dfsg1-1"}
