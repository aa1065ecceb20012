"""Hooks into SGLang where a patch would hold new code; the list is short and checked after it was applied."""

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from sglang_ddtree import compat
from sglang_ddtree.selfcheck import StartRefused

_SCHEDULER = "sglang.srt.managers.scheduler"
_ALL = {
    f"{_SCHEDULER}.Scheduler.get_internal_state": "state.get_internal_state",
    f"{_SCHEDULER}.validate_dflash_request": "refusals.validate_request",
}
_TORCH_NATIVE = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"
_CPU = {f"{_TORCH_NATIVE}.forward_extend": "attention.forward_extend"}


def targets(device: str) -> dict[str, str]:
    """Hooked function -> our function, for a device type."""
    return {**_ALL, **compat.HOOKS, **(_CPU if device == "cpu" else {})}


def install(device: str) -> None:
    """Register and apply the hooks of a device.

    Raises:
        StartRefused: a hook did not take effect.
    """
    for target, ours in targets(device).items():
        HookRegistry.register(target, _resolve(ours), HookType.AROUND)
    HookRegistry.apply_hooks()
    missing = sorted(set(targets(device)) - HookRegistry._patched)
    if missing:
        raise StartRefused(f"the hook on {missing[0]} is not in place: the plugin does not fit this SGLang")


def _resolve(name: str):
    import importlib

    module, function = name.split(".")
    return getattr(importlib.import_module(f"sglang_ddtree.{module}"), function)
