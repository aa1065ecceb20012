"""Does a drafter fit a target? A pure check on the two config.json contents, standard library only.

The engine plugin, the command line and the deployment playbooks all call it, so that a wrong pair is
refused in the same words wherever it is met.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

DRAFTER_ARCHITECTURE = "DFlashDraftModel"
DEFAULT_BLOCK_SIZE = 16  # what SGLang assumes for a drafter whose config names none


def find_problems(target: Mapping, drafter: Mapping, block_size: int | None = None) -> list[str]:
    """List why `drafter` cannot draft for `target`, one clause per reason; empty when it can.

    target, drafter: the parsed config.json of each (a multimodal target's `text_config` is looked into).
    block_size: the block size D, root included, that the engine is to run with; None takes the drafter's.
    """
    architecture = _architecture_problem(target, drafter)
    if architecture:
        return [architecture]  # the other fields of an unrelated model would only add noise
    text = target.get("text_config") or target
    problems = [
        problem for name in ("hidden_size", "vocab_size") for problem in _same(name, drafter.get(name), text.get(name))
    ]
    problems += _layer_problems(text.get("num_hidden_layers"), drafter)
    problems += _mask_token_problems(text.get("vocab_size"), drafter)
    problems += _block_size_problems(drafter, block_size)
    return problems


def find_doubts(drafter: Mapping, block_size: int | None) -> list[str]:
    """What to expect of a drafter that fits but is run otherwise than it was trained, one clause each."""
    trained = drafter_block_size(drafter)
    if block_size is None or not _is_whole(trained) or block_size <= trained:
        return []
    return [
        f"block size {block_size} is more than the {trained} that the drafter was trained on: answers stay exact, "
        f"expect an accept length close to that of {trained} or below"
    ]


def drafter_block_size(drafter: Mapping) -> object:
    """The block size D, root included, that the drafter was trained for, as its config.json states it."""
    return _dflash_value(drafter, "block_size", DEFAULT_BLOCK_SIZE)


def _architecture_problem(target: Mapping, drafter: Mapping) -> str | None:
    if DRAFTER_ARCHITECTURE in (target.get("architectures") or []):
        return "the target is itself a drafter (are the two folders swapped?)"
    found = drafter.get("architectures") or []
    if DRAFTER_ARCHITECTURE not in found:
        return f"the drafter's architecture is {_join(found)}, it must be {DRAFTER_ARCHITECTURE}"
    return None


def _same(name: str, drafter_value: object, target_value: object) -> list[str]:
    if not _is_count(target_value):
        return [f"the target's config.json has no usable {name} ({target_value!r})"]
    if drafter_value != target_value:
        return [f"the drafter's {name} is {drafter_value}, the target's is {target_value}"]
    return []


def _layer_problems(target_layers: object, drafter: Mapping) -> list[str]:
    if not _is_count(target_layers):
        return [f"the target's config.json has no usable num_hidden_layers ({target_layers!r})"]
    trained_for = _dflash_value(drafter, "num_target_layers")
    layer_ids = _dflash_value(drafter, "target_layer_ids")
    problems = []
    if trained_for is None and layer_ids is not None:
        problems.append("the drafter's config.json has target_layer_ids but no num_target_layers")
    elif trained_for is not None and trained_for != target_layers:
        problems.append(
            f"the drafter is made for {trained_for} target layers (num_target_layers), the target has {target_layers}"
        )
    if layer_ids is not None:
        problems += _layer_id_problems(layer_ids, target_layers)
    return problems


def _layer_id_problems(layer_ids: object, target_layers: int) -> list[str]:
    if not isinstance(layer_ids, (list, tuple)) or not layer_ids or not all(map(_is_whole, layer_ids)):
        return [f"the drafter's target_layer_ids must be a list of layer numbers, not {layer_ids!r}"]
    outside = [layer for layer in layer_ids if not 0 <= layer < target_layers]
    if outside:
        return [
            f"the drafter's target_layer_ids name layer {_join(outside)}, "
            f"the target has layers 0 to {target_layers - 1}"
        ]
    # The engine collects the features in layer order, each once; another order would mix them up unseen.
    if any(left >= right for left, right in pairwise(layer_ids)):
        return [f"the drafter's target_layer_ids must rise, not {_join(layer_ids)}"]
    return []


def _mask_token_problems(vocab_size: object, drafter: Mapping) -> list[str]:
    token = _dflash_value(drafter, "mask_token_id")
    if token is None or not _is_count(vocab_size):  # without an id the engine asks the tokenizer
        return []
    if not _is_whole(token) or not 0 <= token < vocab_size:
        return [f"the drafter's mask_token_id is {token!r}, the target's tokens are 0 to {vocab_size - 1}"]
    return []


def _block_size_problems(drafter: Mapping, block_size: int | None) -> list[str]:
    trained = drafter_block_size(drafter)
    if not _is_whole(trained) or trained < 2:
        return [f"the drafter's block_size must be a whole number from 2 on, not {trained!r}"]
    if block_size is not None and block_size < 2:
        return [f"block size {block_size} is asked for, and with fewer than 2 no token is proposed"]
    return []


def _dflash_value(drafter: Mapping, key: str, default: object = None) -> object:
    """Drafters keep these fields in `dflash_config` or beside it; the first wins, as in SGLang."""
    nested = drafter.get("dflash_config") or {}
    return nested.get(key, drafter.get(key, default))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_whole(value) and value > 0


def _join(values: object) -> str:
    return ", ".join(map(str, values)) or "not named"
