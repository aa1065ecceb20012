"""An update says of every patch whether it applies, is in already, or at which hunk of which file it fails."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.loading import load_file

ROOT = Path(__file__).resolve().parents[2]
HEADER = "Description: x\nApplies-To: sglang 1.0\nDrop-When: upstream has it\n\n"
BEFORE = [f"line {number}" for number in range(1, 41)]


@pytest.fixture(scope="module")
def update():
    return load_file(ROOT / "scripts/update.py")


@pytest.fixture
def tree(tmp_path):
    """An unpacked package of one file, and what makes a patch of changed lines for it."""
    file = tmp_path / "site/sglang/engine.py"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(BEFORE) + "\n")

    def patch(**lines: str) -> Path:
        new = [lines.get(f"line_{number}", text) for number, text in enumerate(BEFORE, 1)]
        for folder, text in (("a", BEFORE), ("b", new)):
            path = tmp_path / folder / "sglang/engine.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(text) + "\n")
        command = ["diff", "-U1", "a/sglang/engine.py", "b/sglang/engine.py"]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        (tmp_path / "change.patch").write_text(HEADER + said.stdout)
        return tmp_path / "change.patch"

    return file, patch


def test_a_patch_that_fits_is_applied(update, tree):
    file, patch = tree
    outcome = update.attempt(patch(line_5="five"), file.parents[1])
    assert (outcome.state, outcome.hunks) == ("applies", [])
    assert "five" in file.read_text()


def test_moved_lines_do_not_matter(update, tree):
    file, patch = tree
    file.write_text("above\n" * 7 + file.read_text())
    assert update.attempt(patch(line_5="five"), file.parents[1]).state == "applies"


def test_a_change_that_upstream_has_is_told(update, tree):
    file, patch = tree
    change = patch(line_5="five")
    file.write_text(file.read_text().replace("line 5\n", "five\n"))
    outcome = update.attempt(change, file.parents[1])
    assert (outcome.state, outcome.drop_when) == ("already in", "upstream has it")


def test_the_hunk_that_fails_is_named_and_nothing_is_applied(update, tree):
    file, patch = tree
    change = patch(line_5="five", line_30="thirty")
    file.write_text(file.read_text().replace("line 30\n", "rewritten upstream\n"))
    before = file.read_text()
    outcome = update.attempt(change, file.parents[1])
    assert outcome.state == "fails"
    assert outcome.hunks == ["hunk 2 of sglang/engine.py, looked for at line 29"]
    assert file.read_text() == before
    told = update.table([outcome])
    assert "hunk 2 of sglang/engine.py" in told and "drop it when: upstream has it" in told


def test_context_that_differs_is_a_failure_and_no_fuzz(update, tree):
    file, patch = tree
    change = patch(line_5="five")
    file.write_text(file.read_text().replace("line 4\n", "another line 4\n"))
    assert update.attempt(change, file.parents[1]).state == "fails"


def test_a_file_that_is_gone_is_named(update, tree):
    file, patch = tree
    change = patch(line_5="five")
    file.unlink()
    assert update.attempt(change, file.parents[1]).hunks == ["sglang/engine.py is not in this version any more"]


def test_the_new_version_pins_what_its_wheel_pins(update):
    text = update.requirements("0.5.16", "0.5.99", {"transformers": "9.9", "openai": "8.8", "scipy": "1.0"})
    assert "sglang==0.5.99\ntransformers==9.9\n" in text and "openai==8.8" in text
    assert "-r common.in" in text and "xgrammar==0.2.1" in text and "scipy" not in text


def test_the_series_of_the_nearest_older_version_is_taken(update):
    assert [update.nearest(version) for version in ("0.5.17", "0.5.24", "0.5.16", "0.5.2")] == [
        *("0.5.16", "0.5.23", "0.5.16", "0.5.16")
    ]
