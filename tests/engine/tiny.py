"""A random target and DFlash drafter small enough to draw thousands of completions on the CPU.

All embeddings share one direction, so every context favours the same tokens to some degree; the drafter sees that
direction through the target's embedding and output head, which is what puts sampled tokens into the tree although
nothing was trained.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 24, 64, 4, 2, 16, 128
LAYERS, BLOCK, MASK = 4, 4, VOCAB - 1
TAPS = [0, 2]
# One token per character, enough to spell JSON; the end of the text before them, the mask after them.
CHARACTERS = '{}[]":,012abcdefghijkl'
SHARED, LOGIT_SCALE = 1.5, 1.6

COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def write_pair(folder: Path, seed: int, vocab: int = VOCAB) -> tuple[Path, Path]:
    """Write both models as float32 checkpoints; returns the folders of target and drafter."""
    generator = torch.Generator().manual_seed(seed)
    return _write_target(folder / "target", generator, vocab), _write_drafter(folder / "drafter", generator, vocab)


def write_tokenizer(folder: Path) -> None:
    """Give a target of `write_pair` a tokenizer; without it, it is served with --skip-tokenizer-init."""
    vocab = {"<end>": 0, **{character: number for number, character in enumerate(CHARACTERS, 1)}, "<mask>": MASK}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<mask>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _write_target(folder: Path, generator, vocab: int) -> Path:
    shared = torch.randn(HIDDEN, generator=generator)
    weights = {
        "model.embed_tokens.weight": torch.randn(vocab, HIDDEN, generator=generator) + SHARED * shared,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": matrix(vocab, HIDDEN, generator) * LOGIT_SCALE,
    }
    for layer in range(LAYERS):
        weights |= _layer(f"model.layers.{layer}.", generator)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": LAYERS}
    return write_checkpoint(folder, {**COMMON, "vocab_size": vocab, **config}, weights)


def _write_drafter(folder: Path, generator, vocab: int) -> Path:
    weights = {
        "fc.weight": matrix(HIDDEN, HIDDEN * len(TAPS), generator),
        "hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        **_layer("layers.0.", generator),
        "layers.0.self_attn.q_norm.weight": torch.ones(HEAD_DIM),
        "layers.0.self_attn.k_norm.weight": torch.ones(HEAD_DIM),
    }
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "num_target_layers": LAYERS,
        "block_size": BLOCK,
        "dflash_config": {"mask_token_id": vocab - 1, "target_layer_ids": TAPS},
    }
    return write_checkpoint(folder, {**COMMON, "vocab_size": vocab, **config}, weights)


def _layer(prefix: str, generator) -> dict[str, torch.Tensor]:
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
        "mlp.down_proj": (HIDDEN, MLP),
    }
    weights = {f"{prefix}{name}.weight": matrix(*shape, generator) for name, shape in shapes.items()}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{prefix}{norm}.weight"] = torch.ones(HIDDEN)
    return weights


def matrix(rows: int, columns: int, generator) -> torch.Tensor:
    """Random matrix that keeps the scale of a unit-variance input."""
    return torch.randn(rows, columns, generator=generator) / columns**0.5


def write_checkpoint(folder: Path, config: dict, weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
