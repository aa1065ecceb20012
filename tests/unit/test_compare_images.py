"""Two builds are told apart file by file, and a date alone is no other image."""

from pathlib import Path

import pytest

from tests.unit.loading import load_file

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/compare-images.py"
FILE = (b"0", "0o644", (0, 0), "digest", 100)


@pytest.fixture(scope="module")
def compare():
    return load_file(SCRIPT)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ((b"0", "0o644", (0, 0), "digest", 200), "date"),
        ((b"0", "0o644", (0, 0), "other", 100), "content"),
        ((b"0", "0o755", (0, 0), "digest", 200), "mode or owner"),
    ],
)
def test_each_kind_of_difference_is_named(compare, changed, kind):
    assert compare.differences({"a": FILE, "b": FILE}, {"a": FILE, "b": changed}) == {kind: ["b"]}


def test_a_file_of_one_build_alone_is_named(compare):
    assert compare.differences({"a": FILE}, {"b": FILE}) == {"only in one": ["a", "b"]}
