"""Layouts and targets that speculation cannot serve, found in the server's arguments before anything is loaded."""

from sglang_ddtree import compat, targets
from sglang_ddtree.settings import SettingsError

OTHERWISE = "or serve without speculation"


def check(args) -> None:
    """Refuse arguments that exclude a tree, in any engine.

    Raises:
        SettingsError: naming the argument and the fix.
    """
    if args.speculative_draft_model_path is None:
        raise SettingsError("DDTREE needs a drafter: set --speculative-draft-model-path")
    if args.pp_size != 1:
        raise SettingsError(
            f"--pp-size {args.pp_size}: the drafter needs the hidden states of all layers on every rank, which "
            f"pipeline stages do not exchange; set it to 1, {OTHERWISE}"
        )
    if compat.splits_attention_by_data(args):
        raise SettingsError(
            f"{compat.FLAG_DP_ATTENTION}: each rank then has requests of its own, and candidates are gathered from "
            f"ranks that draft for the same ones; leave it out, {OTHERWISE}"
        )
    if args.enable_lora or (args.lora_paths and args.enable_lora is None):
        flag = "--enable-lora" if args.enable_lora else "--lora-paths"
        raise SettingsError(
            f"{flag}: the drafter was trained for the target without adapters and no adapter is applied to a tree; "
            f"leave it out, {OTHERWISE}"
        )
    if args.grammar_backend == "outlines":
        raise SettingsError("--grammar-backend outlines cannot step back from a branch: use xgrammar or llguidance")
    if args.device == "cpu" and (args.page_size or 1) != 1:
        raise SettingsError(f"DDTREE on a CPU runs with --page-size 1, not {args.page_size}")


def check_models(args) -> None:
    """Refuse targets that cannot verify a tree, and attention heads that ranks cannot share out.

    Raises:
        SettingsError: naming the argument and the fix.
    """
    target = compat.hf_config(args, args.model_path)
    reason = targets.unsupported(target)
    if reason:
        raise SettingsError(
            f"DDTREE cannot serve --model-path {args.model_path}: {reason}; serve it without speculation"
        )
    drafter = compat.hf_config(args, args.speculative_draft_model_path)
    for role, config in (("target", target), ("drafter", drafter)):
        sizes = targets.tensor_parallel_sizes(config)
        if sizes and args.tp_size not in sizes:
            raise SettingsError(
                f"--tp-size {args.tp_size} does not share out the attention heads of the {role}: set it to one of "
                f"{', '.join(map(str, sizes))}"
            )
