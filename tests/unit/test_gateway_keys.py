"""The file of API keys: what is refused, and what a host keeps of it."""

import hashlib
import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "ansible" / "roles" / "gateway" / "filter_plugins"
OLD, NEW, OTHER = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture
def keys():
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("gateway_keys")
    finally:
        sys.path.pop(0)


def test_two_keys_of_a_name_are_both_let_in_and_the_newest_is_sent(keys):
    text = f"# team A\nalice {OLD}\n\nrouter {OTHER}\nalice {NEW}\n"
    assert keys.key_refusals(text, ["router"]) == []
    digest = {key: hashlib.sha256(key.encode()).hexdigest() for key in (OLD, NEW, OTHER)}
    assert keys.key_digests(text) == {digest[OLD]: "alice", digest[NEW]: "alice", digest[OTHER]: "router"}
    assert keys.newest_key(text, "alice") == NEW


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no key"),
        ("# nothing\n", "it has no key"),
        (f"alice\nrouter {OTHER}", "line 1 is not a name"),
        (f"Alice {OLD}\nrouter {OTHER}", "line 1 is not a name"),
        (f"alice {OLD} x\nrouter {OTHER}", "line 1 is not a name"),
        (f"alice {OLD[:31]}\nrouter {OTHER}", "the key of alice in line 1 is shorter than 32 characters"),
        (f'alice {OLD}"\nrouter {OTHER}', "the key of alice in line 1 is shorter than 32 characters or has others"),
        (f"alice {OLD}\nrouter {OLD}", "alice and router have the same key"),
        (f"alice {OLD}", "it has no key for router: add a line"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_a_key_in_the_message(keys, text, reason):
    reasons = keys.key_refusals(text, ["router"])
    assert reasons[0].startswith(reason)
    assert not any(key in " ".join(reasons) for key in (OLD, NEW, OTHER))
