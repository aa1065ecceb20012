"""The settings of one engine: budget, top-k and block size, read once and checked in one place."""

import os
from dataclasses import dataclass

MAX_BUDGET = 127
ENV_BUDGET = "SGLANG_DDTREE_BUDGET"
ENV_TOP_K = "SGLANG_DDTREE_TOPK"
FLAG_BLOCK = "--speculative-dflash-block-size"
FLAG_WIDTH = "--speculative-num-draft-tokens"


class SettingsError(ValueError):
    """One sentence that names the setting and the fix."""


@dataclass(frozen=True)
class Settings:
    """Tree shape. `budget` counts nodes without the root, `block_size` counts the root."""

    budget: int
    top_k: int
    block_size: int

    @property
    def width(self) -> int:
        """W: nodes verified in one target step, the root included."""
        return self.budget + 1

    @property
    def depth(self) -> int:
        """L: how many tokens the drafter proposes after the root."""
        return self.block_size - 1

    @property
    def capacity(self) -> int:
        """Nodes without the root that `top_k` children at each of `depth` levels can give."""
        return sum(self.top_k**level for level in range(1, self.depth + 1))


def read(block_size: int | None, num_draft_tokens: int | None, drafter_block_size: int | None) -> Settings:
    """Settings from the environment and SGLang's own flags.

    Args:
        block_size: `--speculative-dflash-block-size`, None to take the drafter's.
        num_draft_tokens: `--speculative-num-draft-tokens`; derived from the budget, so it may only repeat it.
        drafter_block_size: block size in the drafter's config, None where the config names none.

    Raises:
        SettingsError: a value cannot work; the message names the setting and the fix.
    """
    settings = Settings(
        budget=_integer(ENV_BUDGET, default=8),
        top_k=_integer(ENV_TOP_K, default=4),
        block_size=_block_size(block_size, drafter_block_size),
    )
    _check(settings)
    if num_draft_tokens not in (None, settings.width):
        raise SettingsError(
            f"{FLAG_WIDTH}={num_draft_tokens} contradicts {ENV_BUDGET}={settings.budget}: "
            f"leave the flag out, the width is budget + 1 = {settings.width}"
        )
    return settings


def _integer(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"{name}={text!r} is not a whole number: set it to one, for example {default}") from None


def _block_size(asked: int | None, drafters: int | None) -> int:
    if asked is None and drafters is None:
        raise SettingsError(f"the drafter's config names no block_size: set {FLAG_BLOCK}")
    size = int(asked if asked is not None else drafters)
    if size < 2:
        raise SettingsError(f"{FLAG_BLOCK}={size} proposes no token: use at least 2 (the root counts as one)")
    if drafters is not None and size > drafters:
        raise SettingsError(
            f"{FLAG_BLOCK}={size} is more than the drafter's block size {drafters}: "
            f"a drafter proposes no deeper than it was trained, use at most {drafters}"
        )
    return size


def _check(s: Settings) -> None:
    if s.budget < 1:
        raise SettingsError(f"{ENV_BUDGET}={s.budget} verifies no candidate: use at least 1")
    if s.top_k < 1:
        raise SettingsError(f"{ENV_TOP_K}={s.top_k} proposes no candidate: use at least 1")
    if s.budget > min(s.capacity, MAX_BUDGET):
        raise SettingsError(
            f"{ENV_BUDGET}={s.budget} is more than the tree can hold: top-k {s.top_k} over depth {s.depth} "
            f"gives {s.capacity} nodes and the kernels take {MAX_BUDGET}, lower it or raise {ENV_TOP_K}"
        )
