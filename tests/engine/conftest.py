"""Engine ring: skipped with a reason where the environment was not prepared, shared servers per session."""

import os
from pathlib import Path

import pytest

from tests.engine.feature_requests import ASKED
from tests.engine.pair_of_servers import ask_both
from tests.engine.prompts import PROMPTS
from tests.engine.server import PAIR, VERSIONS, Engine, Server, python
from tests.gpu.engine_pair import drafter_of_block_size
from tests.simulation import greedy_answer, load_pair, pooled_accept_length, walk

FULL = os.environ.get("ENGINE_FULL") == "1"
# SGLang version and ranks of the tree server.
FEATURED = [(version, tp) for tp in (1, 2) for version in VERSIONS]
COUNT, TOKENS = (20, 100) if FULL else (6, 48)


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
def pair(tmp_path_factory):
    """Target and drafter in plain torch; the drafter takes blocks of up to 16."""
    longest = drafter_of_block_size(PAIR / "drafter", 16, tmp_path_factory.mktemp("drafter"))
    return load_pair(PAIR / "target", longest)


@pytest.fixture(scope="session")
def known_answers(pair, prompts):
    """Greedy answers of plain torch, which knows nothing of SGLang."""
    ids = (pair.chat.tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts)
    return [greedy_answer(pair, prompt, TOKENS, ignore_eos=True) for prompt in ids]


@pytest.fixture(scope="session")
def simulated(pair, known_answers):
    """(budget, top-k, block size, window, count) -> mean accept length of the independent simulation.

    count: of the prompts, the first ones.
    """

    def accept_length(budget, top_k, block_size=8, window=None, count=COUNT):
        shape = ("chain" if top_k == 1 else "tree", budget, top_k, block_size)
        return pooled_accept_length(walk(pair, answer, *shape, window=window) for answer in known_answers[:count])

    return accept_length


@pytest.fixture(scope="session", params=FEATURED if FULL else FEATURED[:1], ids="{0[0]}-tp{0[1]}".format)
def features(request, tmp_path_factory):
    """Name of a request -> replies of the tiny pair without speculation and with the tree."""
    version, tp = request.param
    return ask_both(version, tmp_path_factory.mktemp("features"), ASKED, tp)
