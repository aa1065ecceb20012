"""The target's tokenizer and chat template, and the tokens at which a server stops."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment
from tokenizers import Tokenizer


class Chat:
    """Reads tokenizer.json, tokenizer_config.json, config.json and generation_config.json of the target."""

    def __init__(self, folder: Path) -> None:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        jinja = Environment(trim_blocks=True, lstrip_blocks=True)
        self._template = jinja.from_string(settings["chat_template"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.eos_token_ids = {self.tokenizer.token_to_id(settings["eos_token"])}
        for name in ("config.json", "generation_config.json"):
            ids = json.loads((folder / name).read_text()).get("eos_token_id", [])
            self.eos_token_ids |= {ids} if isinstance(ids, int) else set(ids)

    def prompt_ids(self, question: str) -> list[int]:
        """Token ids of one user turn, ready to be answered."""
        messages = [{"role": "user", "content": question}]
        text = self._template.render(messages=messages, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, token_ids: list[int]) -> str:
        """The text of an answer, special tokens left out."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)
