"""Engine ring: skipped with a reason where the environment was not prepared, shared servers per session."""

import os
from pathlib import Path

import pytest

from tests.engine.prompts import PROMPTS
from tests.engine.server import PAIR, VERSIONS, Engine, Server, python

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
def tree_server():
    """Version, budget, top-k -> a running server; the one before it is stopped."""
    running = {}

    def serve(version, budget, top_k=4):
        engine = Engine(version, budget, top_k)
        if engine not in running:
            _stop(running)
            running[engine] = Server(engine).__enter__()
        return running[engine]

    yield serve
    _stop(running)


def _stop(running):
    while running:
        running.popitem()[1].__exit__()
