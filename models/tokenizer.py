"""Build a Hugging Face tokenizer from the tokenizer fields of a GGUF file.

Written as plain JSON, not through the tokenizers library, so that the bytes depend on no version of it.
transformers' own GGUF import is not used: for this family it takes `<|im_start|>` for the end token and
loses the splitting of digits.
"""

from __future__ import annotations

from collections.abc import Sequence

_CONTROL_TOKEN = 3  # GGUF's token type for special tokens


def tokenizer_json(tokens: Sequence[str], token_types: Sequence[int], merges: Sequence[str]) -> dict:
    """The content of tokenizer.json for a byte-level BPE whose digits stand alone ("smollm" in GGUF).

    tokens: the vocabulary, index = token id; token_types: GGUF's type per token, special tokens are 3;
    merges: one "left right" string per rank.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _special_token(token_id, token)
            for token_id, (token, kind) in enumerate(zip(tokens, token_types, strict=True))
            if kind == _CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": list(merges),
        },
    }


def _special_token(token_id: int, token: str) -> dict:
    return {
        "id": token_id,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def tokenizer_config(
    tokens: Sequence[str], *, bos: int, eos: int, pad: int, unk: int, max_length: int, chat_template: str
) -> dict:
    """The content of tokenizer_config.json; `bos` to `unk` are token ids, `max_length` counts tokens."""
    return {
        # The generic class: the GPT-2 class would replace the digit splitting with its own rules.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[bos],
        "eos_token": tokens[eos],
        "pad_token": tokens[pad],
        "unk_token": tokens[unk],
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "chat_template": chat_template,
    }
