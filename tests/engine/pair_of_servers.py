"""Requests that a server without speculation and a tree server of the same settings must answer alike.

One request carries many prompts, so that they reach the scheduler in one message and are decoded four at once,
short ones making room for the next.
"""

from dataclasses import dataclass, field
from pathlib import Path

import requests

from tests.engine.server import Engine, Server
from tests.engine.tiny import write_pair, write_tokenizer

BUDGET, TOP_K = 31, 8
# One with each version, so that both are compared.
GRAMMAR_BACKENDS = {"0.5.16": "llguidance", "0.5.23": "xgrammar"}


@dataclass(frozen=True)
class Asked:
    """One request: the sampling parameters of each prompt, and what it asks for beside the text."""

    prompts: list[list[int]]
    sampling: list[dict]
    more: dict = field(default_factory=dict)

    def of(self, server: Server) -> list[dict]:
        """The server's replies, one per completion."""
        sampling = [{"temperature": 0, "ignore_eos": True, **entry} for entry in self.sampling]
        body = {"input_ids": self.prompts, "sampling_params": sampling, **self.more}
        reply = requests.post(f"{server.url}/generate", json=body, timeout=300)
        reply.raise_for_status()
        return reply.json()


@dataclass(frozen=True)
class Replies:
    """What both servers replied to one request."""

    plain: list[dict]
    tree: list[dict]

    def tokens(self) -> tuple[list, list]:
        """Output tokens of every completion, without speculation and with the tree."""
        return tuple([one["output_ids"] for one in side] for side in (self.plain, self.tree))

    def accept_length(self) -> float:
        """Tokens per target step of the tree server, after the tokens of the prefills."""
        infos = [one["meta_info"] for one in self.tree]
        return sum(info["completion_tokens"] - 1 for info in infos) / sum(info["spec_verify_ct"] for info in infos)


def ask_both(version: str, folder: Path, asked: dict[str, Asked], tp: int = 1) -> dict[str, Replies]:
    """Serve a tiny pair with a tokenizer first without speculation, then with the tree, and ask each everything.

    tp: ranks of the tree server. The vocabulary is shorter than the first rank's part, so another has no token.
    """
    target, drafter = write_pair(folder, seed=1)
    write_tokenizer(target)
    flags = ("--random-seed", "7", "--grammar-backend", GRAMMAR_BACKENDS[version])
    models = {"target": target, "drafter": drafter, "flags": flags}
    answers = []
    for engine in (Engine(version, **models), Engine(version, BUDGET, TOP_K, **models, tp=tp)):
        with Server(engine) as server:
            answers.append({name: one.of(server) for name, one in asked.items()})
    return {name: Replies(answers[0][name], answers[1][name]) for name in asked}
