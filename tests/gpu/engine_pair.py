"""Prompts of the engine matrix and of its simulation, and a drafter that claims another block size."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from tests.engine.prompts import QUESTIONS, chat

#: New tokens per prompt where accept lengths are compared.
TOKENS = 100


def prompts(target: Path, count: int = len(QUESTIONS)) -> list[list[int]]:
    """Token ids of `count` prompts of one, four, seven and ten questions in turn: about 30 to 150 tokens.

    The ids are sent as they are, so that the simulation and every server see the same input.
    """
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    return [tokenizer.encode(_text(number), add_special_tokens=False).ids for number in range(count)]


def _text(number: int) -> str:
    asked = (QUESTIONS[(number + i) % len(QUESTIONS)] for i in range(1 + 3 * (number % 4)))
    return chat(" ".join(asked))


def drafter_of_block_size(drafter: Path, block_size: int, into: Path) -> Path:
    """A folder with the drafter's weights (linked) and a config that names `block_size`.

    A drafter proposes nothing of use beyond the block it was trained on; exactness must not depend on that.
    """
    into.mkdir(parents=True, exist_ok=True)
    config = json.loads((drafter / "config.json").read_text())
    (into / "config.json").write_text(json.dumps({**config, "block_size": block_size}))
    weights = into / "model.safetensors"
    if not weights.is_symlink():
        weights.symlink_to((drafter / "model.safetensors").resolve())
    return into
