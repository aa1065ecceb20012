"""Convert a Llama model in GGUF to the Hugging Face layout (safetensors, config, tokenizer).

The weights are stored in float32. A Q4_1 weight is `scale * q + minimum` with two half-precision
factors, so that neither bfloat16 nor float16 can hold it; float32 holds exactly what the dequantiser
computes, and serving in float32 or in bfloat16 both start from the same numbers.
Every output is a pure function of the input: no time, path or library version enters it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from models import tokenizer
from models.errors import ModelError
from models.safetensors_file import Float32Tensor, write_float32

if TYPE_CHECKING:
    import numpy as np

_GLOBAL_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Turn the rows of a query or key projection from llama.cpp's rotary order to Hugging Face's.

    weight: [heads * head_dim, inputs]. Within a head llama.cpp keeps the two halves of a rotated pair
    side by side (rows 2i and 2i+1); Hugging Face keeps them half a head apart (rows i and i+head_dim/2).
    """
    rows, inputs = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


class GgufModel:
    """A Llama model with byte-level BPE in a GGUF file, and how to write each file of the converted model."""

    def __init__(self, path: Path):
        """Raises ModelError when the file is not a GGUF file of a kind that this converter knows."""
        from gguf import GGUFReader

        try:
            self._reader = GGUFReader(path)
        except (ValueError, IndexError, KeyError) as error:
            raise ModelError(f"{path.name} is not a readable GGUF file: {error}") from error
        self._require("general.architecture", "llama")
        self._require("tokenizer.ggml.model", "gpt2")
        self._require("tokenizer.ggml.pre", "smollm")

    @property
    def writers(self) -> dict[str, Callable[[Path], None]]:
        """File name in the converted model -> function that writes it to a path."""
        return {
            "config.json": partial(_write_json, make=self._config),
            "generation_config.json": partial(_write_json, make=self._generation_config),
            "model.safetensors": lambda path: write_float32(path, self._tensors()),
            "tokenizer.json": partial(_write_json, make=self._tokenizer),
            "tokenizer_config.json": partial(_write_json, make=self._tokenizer_config),
        }

    def _field(self, key: str):
        field = self._reader.get_field(key)
        if field is None:
            raise ModelError(f"The GGUF file has no field {key}; it cannot be converted.")
        return field.contents()

    def _require(self, key: str, expected: str) -> None:
        found = self._field(key)
        if found != expected:
            raise ModelError(f"The GGUF file has {key}={found!r}; only {expected!r} can be converted.")

    def _config(self) -> dict:
        heads = self._field("llama.attention.head_count")
        hidden_size = self._field("llama.embedding_length")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": hidden_size,
            "intermediate_size": self._field("llama.feed_forward_length"),
            "num_hidden_layers": self._field("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._field("llama.attention.head_count_kv"),
            "head_dim": hidden_size // heads,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rms_norm_eps": _shortest_float32(self._field("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": _shortest_float32(self._field("llama.rope.freq_base")),
            "max_position_embeddings": self._field("llama.context_length"),
            "vocab_size": self._field("llama.vocab_size"),
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            **self._generation_config(),
        }

    def _generation_config(self) -> dict:
        return {
            "bos_token_id": self._field("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._field("tokenizer.ggml.eos_token_id"),
            "pad_token_id": self._field("tokenizer.ggml.padding_token_id"),
        }

    def _tokenizer(self) -> dict:
        return tokenizer.tokenizer_json(
            self._field("tokenizer.ggml.tokens"),
            self._field("tokenizer.ggml.token_type"),
            self._field("tokenizer.ggml.merges"),
        )

    def _tokenizer_config(self) -> dict:
        return tokenizer.tokenizer_config(
            self._field("tokenizer.ggml.tokens"),
            bos=self._field("tokenizer.ggml.bos_token_id"),
            eos=self._field("tokenizer.ggml.eos_token_id"),
            pad=self._field("tokenizer.ggml.padding_token_id"),
            unk=self._field("tokenizer.ggml.unknown_token_id"),
            max_length=self._field("llama.context_length"),
            chat_template=self._field("tokenizer.chat_template"),
        )

    def _tensors(self) -> list[Float32Tensor]:
        # GGUF lists the fastest-running dimension first.
        return [
            Float32Tensor(
                _hugging_face_name(tensor.name),
                tuple(int(length) for length in reversed(tensor.shape)),
                partial(self._load, tensor),
            )
            for tensor in self._reader.tensors
        ]

    def _load(self, tensor) -> np.ndarray:
        from gguf import dequantize

        weight = dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            return unpermute(weight, self._field("llama.attention.head_count"))
        if tensor.name.endswith("attn_k.weight"):
            return unpermute(weight, self._field("llama.attention.head_count_kv"))
        return weight


def _hugging_face_name(name: str) -> str:
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise ModelError(f"The GGUF file has a tensor {name} that a Llama model with tied embeddings has not.")
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.weight"


def _shortest_float32(value: float) -> float:
    """The shortest decimal that names the same float32: 9.999999747378752e-06 was written as 1e-05."""
    import numpy as np

    return float(str(np.float32(value)))


def _write_json(path: Path, make: Callable[[], dict]) -> None:
    path.write_text(json.dumps(make(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
