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
        ({}, ("--pp-size", "2"), "--pp-size 2: the drafter needs the hidden states of all layers"),
        ({}, ("--tp-size", "3", "--enable-dp-attention", "--dp-size", "3"), "each rank then has requests of its own"),
        (
            {},
            ("--enable-lora", "--max-lora-rank", "8"),
            "--enable-lora: the drafter was trained for the target without",
        ),
        ({}, ("--lora-paths", "one=/nowhere"), "--lora-paths: the drafter was trained for the target without"),
        (
            {},
            ("--tp-size", "2"),
            "--tp-size 2 does not share out the attention heads of the target: set it to one of 1",
        ),
    ],
)
def test_a_bad_setting_is_named(refusal, version, env, flags, words):
    line = refusal(version, flags, **env)
    assert line.startswith("DDTREE refuses to start") and words in line


SLIDING = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 128}
HYBRID = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "full_attention_interval": 4}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("config", "word"), [(SLIDING, "sliding-window"), (HYBRID, "recurrent")], ids=lambda _: "")
def test_a_target_that_cannot_verify_a_tree_is_refused(refusal, tmp_path, version, config, word):
    shutil.copytree(PAIR / "target", tmp_path / "target", ignore=shutil.ignore_patterns("*.safetensors"))
    path = tmp_path / "target" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    # With it SGLang asks of a recurrent target what no CPU has, before it asks the plugin.
    line = refusal(version, ("--disable-radix-cache",), target=tmp_path / "target")
    assert line.startswith("DDTREE refuses to start") and word in line
    assert "serve it without speculation" in line


@pytest.mark.parametrize("version", VERSIONS)
def test_ranks_that_share_out_the_heads_are_accepted(refusal, version):
    assert refusal(version, ("--tp-size", "3")) == "accepted"


def test_the_new_flag_of_data_parallel_attention_is_refused_too(refusal):
    line = refusal("0.5.23", ("--tp-size", "3", "--attn-dp-size", "3"))
    assert line.startswith("DDTREE refuses to start: --attn-dp-size") and "serve without speculation" in line
