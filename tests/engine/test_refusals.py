"""A configuration that cannot work ends the start with one line that names the setting and the fix."""

import contextlib
import json
import shutil
import subprocess

import pytest

from tests.engine.server import PAIR, ROOT, VERSIONS, Engine, environment, python

TREE = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(PAIR / "drafter")]


@pytest.fixture(scope="module")
def refusal():
    """Asks a version's argument handling; each version's interpreter imports SGLang once."""
    with contextlib.ExitStack() as running:
        handlers = {}

        def ask(version: str, flags=(), target=PAIR / "target", **env: str) -> str:
            if version not in handlers:
                command = [str(python(version)), "-m", "tests.engine.refuse"]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
                handler = subprocess.Popen(command, env=environment(), cwd=ROOT, text=True, **pipes)
                handlers[version] = running.enter_context(handler)
            line = {"arguments": arguments(version, flags, target), "environment": env}
            print(json.dumps(line), file=handlers[version].stdin, flush=True)
            return json.loads(handlers[version].stdout.readline())

        yield ask


def arguments(version: str, flags, target) -> list[str]:
    """Those of a server of the target, with TREE and `flags`."""
    base = [f for f in Engine(version).command(0)[3:] if f != str(PAIR / "target")]
    base.insert(base.index("--model-path") + 1, str(target))
    return [*base, *TREE, *flags]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_configuration_is_accepted(refusal, version):
    assert refusal(version) == "accepted"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_window_of_one_block_and_a_block_beyond_the_training_are_accepted(refusal, version):
    flags = ("--speculative-dflash-block-size", "16", "--speculative-draft-window-size", "16")
    assert refusal(version, flags) == "accepted"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("env", "flags", "words"),
    [
        ({"SGLANG_DDTREE_BUDGET": "0"}, (), "SGLANG_DDTREE_BUDGET=0"),
        ({}, ("--speculative-dflash-block-size", "129"), "--speculative-dflash-block-size=129"),
        ({}, ("--speculative-draft-window-size", "7"), "--speculative-draft-window-size=7"),
        ({}, ("--page-size", "16"), "--page-size 1"),
        ({}, ("--grammar-backend", "outlines"), "xgrammar or llguidance"),
        ({}, ("--decode-attention-backend", "intel_amx"), "cannot verify a tree"),
    ],
)
def test_a_bad_setting_is_named(refusal, version, env, flags, words):
    line = refusal(version, flags, **env)
    assert line.startswith("DDTREE refuses to start") and words in line


def test_a_sliding_window_target_is_refused(refusal, tmp_path):
    shutil.copytree(PAIR / "target", tmp_path / "target", ignore=shutil.ignore_patterns("*.safetensors"))
    path = tmp_path / "target" / "config.json"
    config = json.loads(path.read_text())
    config.update(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=128)
    path.write_text(json.dumps(config))
    line = refusal(VERSIONS[1], target=tmp_path / "target")
    assert line.startswith("DDTREE refuses to start") and "sliding-window" in line
