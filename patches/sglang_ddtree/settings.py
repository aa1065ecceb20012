"""The settings of one engine: budget, top-k and block size, read once and checked in one place."""

import os
from dataclasses import dataclass, replace

from sglang_ddtree import tiers

MAX_BUDGET = 127
ENV_BUDGET = "SGLANG_DDTREE_BUDGET"
ENV_TOP_K = "SGLANG_DDTREE_TOPK"
FLAG_BLOCK = "--speculative-dflash-block-size"
FLAG_WIDTH = "--speculative-num-draft-tokens"
FLAG_WINDOW = "--speculative-draft-window-size"


class SettingsError(ValueError):
    """One sentence that names the setting and the fix."""


@dataclass(frozen=True)
class Settings:
    """Tree shape. `budget` counts nodes without the root, `block_size` counts the root.

    trained_block: the block size of the drafter's training, None where its config names none.
    draft_window: committed tokens that the drafter looks back, None for all of them.
    table: what serves which batch size, None where every step verifies a tree of `budget` nodes; with it, `budget`
        is that of the largest tree.
    """

    budget: int
    top_k: int
    block_size: int
    trained_block: int | None = None
    draft_window: int | None = None
    table: tiers.Table | None = None

    @property
    def width(self) -> int:
        """W: nodes verified in one target step, the root included."""
        return self.budget + 1

    @property
    def engine_width(self) -> int:
        """Nodes of the widest step that the engine may take: what it reserves and sizes its buffers for."""
        return max(tier.shape.width for tier in self.tiers())

    def tiers(self) -> tuple[tiers.Tier, ...]:
        """Every way that a step may run, each once."""
        names = self.table.names if self.table else (self.budget,)
        return tuple(tiers.tier(name, self) for name in dict.fromkeys(names))

    @property
    def depth(self) -> int:
        """L: how many tokens the drafter proposes after the root."""
        return self.block_size - 1

    @property
    def warning(self) -> str | None:
        """What to expect of a block that is longer than the drafter's training, None for others."""
        if self.trained_block is None or self.block_size <= self.trained_block:
            return None
        return (
            f"{FLAG_BLOCK}={self.block_size} is more than the {self.trained_block} that the drafter was trained on: "
            f"answers stay exact, but its proposals beyond depth {self.trained_block - 1} are guesses and the longer "
            f"block may spoil the others, so expect an accept length close to that of {self.trained_block} or below "
            f"and a slower draft pass; measure both"
        )

    @property
    def capacity(self) -> int:
        """Nodes without the root that `top_k` children at each of `depth` levels can give."""
        return sum(self.top_k**level for level in range(1, self.depth + 1))


def read(
    block_size: int | None,
    num_draft_tokens: int | None,
    drafter_block_size: int | None,
    draft_window: int | None = None,
) -> Settings:
    """Settings from the environment and SGLang's own flags.

    Args:
        block_size: `--speculative-dflash-block-size`, None to take the drafter's.
        num_draft_tokens: `--speculative-num-draft-tokens`; derived from the budget, so it may only repeat it.
        drafter_block_size: block size in the drafter's config, None where the config names none.
        draft_window: `--speculative-draft-window-size`, None for the whole context.

    Raises:
        SettingsError: a value cannot work; the message names the setting and the fix.
    """
    settings = Settings(
        budget=_integer(ENV_BUDGET, default=8),
        top_k=_integer(ENV_TOP_K, default=4),
        block_size=_block_size(block_size, drafter_block_size),
        trained_block=drafter_block_size,
        draft_window=draft_window,
    )
    if os.environ.get(tiers.ENV_TIERS):
        settings = _with_table(settings, os.environ[tiers.ENV_TIERS])
    _check(settings)
    if num_draft_tokens not in (None, settings.engine_width):
        raise SettingsError(
            f"{FLAG_WIDTH}={num_draft_tokens} contradicts {ENV_BUDGET}={settings.budget}: "
            f"leave the flag out, the width is budget + 1 = {settings.engine_width}"
        )
    return settings


def _with_table(single: Settings, setting: str) -> Settings:
    """The settings with a table's tiers, which name the budget and may name the top-k."""
    try:
        table = tiers.read(setting, single.capacity)
    except tiers.TableError as error:
        raise SettingsError(str(error)) from None
    top_k = table.top_k or single.top_k
    # A table without a tree still drafts one, of which it uses nothing or the chain.
    found = replace(single, budget=table.largest_budget or 1, top_k=top_k, table=table)
    for name, asked, used in ((ENV_BUDGET, single.budget, found.budget), (ENV_TOP_K, single.top_k, top_k)):
        if name in os.environ and asked != used:
            raise SettingsError(f"{name}={asked} contradicts {tiers.ENV_TIERS}={setting}, which has {used}: unset it")
    return found


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
    if size > MAX_BUDGET + 1:
        raise SettingsError(f"{FLAG_BLOCK}={size} is deeper than a tree of the kernels: use at most {MAX_BUDGET + 1}")
    return size


def _check(s: Settings) -> None:
    if s.budget < 1:
        raise SettingsError(f"{ENV_BUDGET}={s.budget} verifies no candidate: use at least 1")
    if s.top_k < 1:
        raise SettingsError(f"{ENV_TOP_K}={s.top_k} proposes no candidate: use at least 1")
    if s.draft_window is not None and s.draft_window < s.block_size:
        raise SettingsError(
            f"{FLAG_WINDOW}={s.draft_window} is shorter than one block: use at least {s.block_size}, "
            f"or leave it out for the whole context"
        )
    if s.budget > min(s.capacity, MAX_BUDGET):
        where = f"{tiers.ENV_TIERS}={s.table.source}: the budget {s.budget}" if s.table else f"{ENV_BUDGET}={s.budget}"
        raise SettingsError(
            f"{where} is more than the tree can hold: top-k {s.top_k} over depth {s.depth} "
            f"gives {s.capacity} nodes and the kernels take {MAX_BUDGET}, lower it or raise {ENV_TOP_K}"
        )
