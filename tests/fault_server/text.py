"""Text, tokens and chat prompts of the fault server. Its token ids are its own: digests of the pieces of text."""

from __future__ import annotations

import hashlib
import re

EOS = 2
SPECIAL = {0: "<|endoftext|>", 1: "<|im_start|>", EOS: "<|im_end|>"}
# Prompts: a word with the blank before it is a token, any other character is one. About as many as a real tokenizer's.
_PIECE = re.compile("|".join(map(re.escape, SPECIAL.values())) + r"| ?[A-Za-z]+|.", re.DOTALL)
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", re.DOTALL)


class Tokenizer:
    """Any text survives the way to ids and back; a piece has the same id in every process."""

    def __init__(self):
        self._text = dict(SPECIAL)
        self._ids = {piece: token for token, piece in SPECIAL.items()}

    def ids(self, text: str) -> list[int]:
        """Token ids of any text, special tokens recognised."""
        return [self.id_of(piece) for piece in _PIECE.findall(text)]

    def id_of(self, piece: str) -> int:
        """Token id of one piece of text, which may be new."""
        if piece not in self._ids:
            token = int.from_bytes(hashlib.sha256(piece.encode()).digest()[:5], "big") + len(SPECIAL)
            self._text[token] = piece
            self._ids[piece] = token
        return self._ids[piece]

    def text(self, ids: list[int], special: bool = False) -> str:
        """What the tokens say; the special ones only when asked for. Raises KeyError for an unknown id."""
        return "".join(self._text[token] for token in ids if special or token not in SPECIAL)


def chat_prompt(messages: list[dict[str, str]]) -> str:
    """A conversation as the text that the model continues."""
    turns = (f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return "".join(turns) + "<|im_start|>assistant\n"


def messages_of(prompt: str) -> list[dict[str, str]] | None:
    """The conversation that `chat_prompt` made into `prompt`; None for any other text."""
    messages = [{"role": role, "content": content} for role, content in _TURN.findall(prompt)]
    return messages if messages and chat_prompt(messages) == prompt else None
