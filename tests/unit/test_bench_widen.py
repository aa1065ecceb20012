"""The widened pair computes what the small pair computes."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench import widen
from models.checkpoint import check_folders
from tests.engine.server import environment
from tests.simulation import greedy_answer, load_pair, walk
from tests.simulation.defaults import QUESTIONS, pair_dir
from tests.simulation.drafter import Drafter
from tests.simulation.target import Target

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, NEURONS, VOCABULARY, LAYERS = 24, 4, 2, 8, 40, 50, 3
WIDER = ["--hidden", "72", "--heads", "12", "--kv-heads", "6", "--dtype", "float32", "--device", "cpu"]
#: An eps as large as the mean squares of small queries and keys, so that it matters in every norm.
STD, EPS = 0.03, 0.01

SHARED = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "intermediate_size": NEURONS,
    "rms_norm_eps": EPS,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
    "torch_dtype": "float32",
}


def layer_shapes(prefix):
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (NEURONS, HIDDEN),
        "mlp.up_proj": (NEURONS, HIDDEN),
        "mlp.down_proj": (HIDDEN, NEURONS),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def write_model(folder, config, shapes):
    folder.mkdir()
    rng = torch.Generator().manual_seed(len(shapes))
    weights = {
        f"{name}.weight": torch.randn(shape, generator=rng) * STD + (len(shape) == 1) for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(SHARED | config))


@pytest.fixture
def small(tmp_path):
    """A random pair whose every weight matters, as --target and --drafter."""
    target = {"model.embed_tokens": (VOCABULARY, HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(LAYERS):
        target |= layer_shapes(f"model.layers.{layer}")
    write_model(
        tmp_path / "target",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "num_hidden_layers": LAYERS,
            "tie_word_embeddings": True,
        },
        target,
    )
    (tmp_path / "target" / "tokenizer.json").write_text("{}")
    head_norms = {f"layers.0.self_attn.{name}": (HEAD_DIM,) for name in ("q_norm", "k_norm")}
    norms = {"hidden_norm": (HIDDEN,), "norm": (HIDDEN,)}
    write_model(
        tmp_path / "drafter",
        {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "num_hidden_layers": 1,
            "num_target_layers": LAYERS,
            "block_size": 4,
            "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]},
        },
        layer_shapes("layers.0") | head_norms | norms | {"fc": (HIDDEN, 2 * HIDDEN)},
    )
    return tmp_path


def run(small, *flags):
    out = small / "wide"
    pair = ["--target", str(small / "target"), "--drafter", str(small / "drafter"), "--out", str(out)]
    return widen.main([*pair, *WIDER, *flags]), out


def test_target_keeps_its_logits_and_the_padding_of_its_stream_stays_zero(small):
    code, out = run(small)
    assert code == 0
    before, after = (Target.load(folder / "target") for folder in (small, out))
    ids = [1, 7, 30, 7, 49]
    old, new = before.forward(ids).streams, after.forward(ids).streams
    assert all(torch.count_nonzero(stream[:, HIDDEN:]) == 0 for stream in new)
    for expected, stream in zip(old, new, strict=True):
        torch.testing.assert_close(stream[:, :HIDDEN], expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(after.logits(new[-1]), before.logits(old[-1]), rtol=1e-5, atol=1e-6)


def test_drafter_keeps_its_block(small):
    code, out = run(small)
    assert code == 0
    rng = torch.Generator().manual_seed(5)
    features = torch.randn(6, 2, HIDDEN, generator=rng)
    embeds = torch.randn(4, HIDDEN, generator=rng)
    before, after = (Drafter.load(folder / "drafter") for folder in (small, out))
    expected = before.block(embeds, before.context(features.flatten(1)), start=5)

    def padded(x):
        return torch.cat([x, torch.zeros(*x.shape[:-1], 72 - HIDDEN)], dim=-1)

    found = after.block(padded(embeds), after.context(padded(features).flatten(1)), start=5)
    assert torch.count_nonzero(found[:, HIDDEN:]) == 0
    torch.testing.assert_close(found[:, :HIDDEN], expected, rtol=1e-4, atol=1e-5)


def test_added_heads_and_neurons_do_real_work(small):
    _, out = run(small)
    for role in ("target", "drafter"):
        for name, weight in load_file(out / role / "model.safetensors").items():
            if any(part in name for part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")):
                assert (weight != 0).float().mean() > 0.99, name


def test_pair_fits_and_brings_the_tokenizer(small):
    _, out = run(small)
    check_folders(out / "target", out / "drafter")
    assert (out / "target" / "tokenizer.json").read_text() == "{}"
    config = json.loads((out / "drafter" / "config.json").read_text())
    assert (config["hidden_size"], config["intermediate_size"], config["head_dim"]) == (72, 120, HEAD_DIM)
    assert config["rms_norm_eps"] == pytest.approx(EPS / 3)


def test_large_model_is_written_in_parts(small, monkeypatch):
    _, whole = run(small)
    weights = load_file(whole / "target" / "model.safetensors")
    shutil.rmtree(whole)
    monkeypatch.setattr(widen, "SHARD_BYTES", 60_000)
    _, out = run(small)
    index = json.loads((out / "target" / "model.safetensors.index.json").read_text())
    parts = set(index["weight_map"].values())
    assert len(parts) > 2 and not (out / "target" / "model.safetensors").exists()
    read = {}
    for part in parts:
        read |= load_file(out / "target" / part)
    assert {name: index["weight_map"][name] for name in read}.keys() == weights.keys()
    assert all(torch.equal(read[name], weights[name]) for name in weights)
    check_folders(out / "target", out / "drafter")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--hidden", "20"], "--hidden 20"),
        (["--heads", "2", "--kv-heads", "1"], "--heads 2"),
        (["--kv-heads", "4"], "--heads 8"),
        (["--hidden", "75"], "--hidden 84"),
        (["--intermediate", "30"], "--intermediate 30"),
    ],
)
def test_impossible_size_is_refused_with_the_flag(small, capsys, flags, named):
    code, out = run(small, *flags)
    assert code == 1 and not out.exists()
    assert named in capsys.readouterr().err


def test_full_folder_is_left_alone(small, capsys):
    (small / "wide").mkdir()
    (small / "wide" / "mine").write_text("keep")
    code, out = run(small)
    assert code == 1 and [path.name for path in out.iterdir()] == ["mine"]
    assert "--out" in capsys.readouterr().err


def test_weight_of_another_architecture_is_refused(small, capsys):
    path = small / "drafter" / "model.safetensors"
    save_file(load_file(path) | {"layers.0.self_attn.q_proj.bias": torch.zeros(32)}, path)
    code, out = run(small)
    assert code == 1 and not out.exists()
    assert "q_proj.bias" in capsys.readouterr().err


@pytest.fixture(scope="module")
def widened(tmp_path_factory):
    """The embedded pair, a quarter wider, with heads that do not fill the hidden size."""
    out = tmp_path_factory.mktemp("pair") / "wide"
    pair = ["--target", str(pair_dir() / "target"), "--drafter", str(pair_dir() / "drafter"), "--out", str(out)]
    sizes = ["--hidden", "720", "--heads", "12", "--kv-heads", "4", "--intermediate", "1600"]
    assert widen.main([*pair, *sizes, "--dtype", "float32", "--device", "cpu"]) == 0
    yield out
    shutil.rmtree(out)  # close to one GB


#: Prints the spread of the first folder's logits and their largest distance from the second's.
COMPARE = """
import sys, torch
from transformers import LlamaForCausalLM
ids = torch.tensor([[1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198]])
models = [LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in sys.argv[1:]]
with torch.inference_mode():
    small, wide = (model(ids).logits for model in models)
print(small.std().item(), (wide - small).abs().max().item())
"""


@pytest.mark.engine
def test_embedded_target_keeps_its_logits_in_transformers(widened):
    # A process of its own: transformers imports on a CPU with the stand-ins of the engine's environment only.
    folders = [str(pair_dir() / "target"), str(widened / "target")]
    command = [sys.executable, "-c", COMPARE, *folders]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    spread, distance = map(float, done.stdout.split())
    assert spread > 1  # else the comparison would be empty
    assert distance < 1e-4


@pytest.mark.engine
def test_embedded_pair_keeps_its_accept_walk(widened):
    def walks(pair):
        for question in QUESTIONS[1:3]:
            answer = greedy_answer(pair, pair.chat.prompt_ids(question), max_new_tokens=40)
            yield answer.tokens, walk(pair, answer, "chain"), walk(pair, answer, "tree", budget=16, top_k=8)

    small = list(walks(load_pair(pair_dir() / "target", pair_dir() / "drafter")))
    assert list(walks(load_pair(widened / "target", widened / "drafter"))) == small
    assert any(sum(chain.accepted) < sum(tree.accepted) for _, chain, tree in small)
