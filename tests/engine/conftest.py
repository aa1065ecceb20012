"""Engine ring: skipped with a reason where the environment was not prepared, shared servers per session."""

import os
from pathlib import Path

import pytest

from tests.engine.feature_requests import ASKED
from tests.engine.pair_of_servers import ask_both
from tests.engine.prompts import PROMPTS
from tests.engine.server import PAIR, VERSIONS, Engine, Server, python
from tests.simulation import greedy_answer, load_pair, pooled_accept_length, walk

FULL = os.environ.get("ENGINE_FULL") == "1"
COUNT, TOKENS = (20, 100) if FULL else (8, 60)


def pytest_collection_modifyitems(items):
    ready = PAIR.is_dir() and all(python(version).is_file() for version in VERSIONS)
    here = Path(__file__).parent
    for item in (item for item in items if here in item.path.parents):
        item.add_marker(pytest.mark.engine)
        if not ready:
            item.add_marker(pytest.mark.skip(reason="the engine environments are missing: run `make engine-env`"))


@pytest.fixture(scope="session")
def prompts():
    return PROMPTS[:COUNT]


@pytest.fixture(scope="session")
def greedy(prompts):
    """Version -> greedy answers of the server without speculation, one at a time."""
    known = {}

    def answers(version):
        if version not in known:
            with Server(Engine(version)) as server:
                known[version] = server.answers(prompts, 1, TOKENS)
        return known[version]

    return answers


@pytest.fixture(scope="session")
def simulated(prompts):
    """(budget, top-k) -> mean accept length of the independent simulation over the same prompts."""
    pair = load_pair(PAIR / "target", PAIR / "drafter")
    ids = (pair.chat.tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts)
    answers = [greedy_answer(pair, prompt, TOKENS, ignore_eos=True) for prompt in ids]

    def accept_length(budget, top_k):
        method = "chain" if top_k == 1 else "tree"
        return pooled_accept_length(walk(pair, answer, method, budget, top_k, 8) for answer in answers)

    return accept_length


@pytest.fixture(scope="session", params=VERSIONS if FULL else VERSIONS[:1])
def features(request, tmp_path_factory):
    """Name of a request -> replies of the tiny pair without speculation and with the tree."""
    return ask_both(request.param, tmp_path_factory.mktemp("features"), ASKED)
