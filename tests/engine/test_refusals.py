"""A configuration that cannot work ends the start with one line that names the setting and the fix."""

import json
import shutil
import subprocess

import pytest

from tests.engine.server import PAIR, VERSIONS, Engine, environment, python

TREE = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(PAIR / "drafter")]


def refusal(version: str, flags=(), target=PAIR / "target", **env: str) -> str:
    """Last line that the server's argument handling prints before it ends."""
    code = (
        "import sys\nfrom sglang.srt.plugins import load_plugins\nload_plugins()\n"
        "from sglang.srt.server_args import prepare_server_args\nargs = prepare_server_args(sys.argv[1:])\n"
        # 0.5.16 resolves the arguments as it parses them, 0.5.23 when it is asked to.
        "getattr(args, 'resolve_once', lambda: None)()\n"
        "print('accepted', file=sys.stderr)"
    )
    base = [f for f in Engine(version).command(0)[3:] if f != str(PAIR / "target")]
    base.insert(base.index("--model-path") + 1, str(target))
    command = [str(python(version)), "-c", code, *base, *TREE, *flags]
    run = subprocess.run(command, env=environment(**env), capture_output=True, text=True)
    return run.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_configuration_is_accepted(version):
    assert refusal(version) == "accepted"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("env", "flags", "words"),
    [
        ({"SGLANG_DDTREE_BUDGET": "0"}, (), "SGLANG_DDTREE_BUDGET=0"),
        ({}, ("--speculative-dflash-block-size", "16"), "--speculative-dflash-block-size=16"),
        ({}, ("--page-size", "16"), "--page-size 1"),
        ({}, ("--decode-attention-backend", "intel_amx"), "cannot verify a tree"),
    ],
)
def test_a_bad_setting_is_named(version, env, flags, words):
    line = refusal(version, flags, **env)
    assert line.startswith("DDTREE refuses to start") and words in line


def test_a_sliding_window_target_is_refused(tmp_path):
    shutil.copytree(PAIR / "target", tmp_path / "target", ignore=shutil.ignore_patterns("*.safetensors"))
    path = tmp_path / "target" / "config.json"
    config = json.loads(path.read_text())
    config.update(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=128)
    path.write_text(json.dumps(config))
    line = refusal(VERSIONS[1], target=tmp_path / "target")
    assert line.startswith("DDTREE refuses to start") and "sliding-window" in line
