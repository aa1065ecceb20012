"""The algorithm as SGLang's registry sees it."""

import logging

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from sglang_ddtree import compat, layouts, settings
from sglang_ddtree.selfcheck import StartRefused
from sglang_ddtree.settings import SettingsError

logger = logging.getLogger(__name__)

NAME = "DDTREE"
TREE_BACKENDS = {"cpu": ("torch_native",), "cuda": ("triton",)}
DEFAULT_MAX_RUNNING_REQUESTS = 48


class DDTreeAlgorithm(CustomSpecAlgo):
    """Behaves as a member of the DFlash family whose drafter and target run at different widths."""

    verifies_tree = True

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def supports_prefill_shared_read_done(self) -> bool:
        return True

    def supports_grammar_overlap(self) -> bool:
        return True

    def carries_draft_hidden_states(self) -> bool:
        return False

    def need_topk(self) -> bool:
        return False

    def create_future_map(self, *args, **kwargs):
        from sglang.srt.managers.overlap_utils import FutureMap

        device, *rest = args
        return FutureMap(device, self, *rest, **kwargs)

    def get_num_tokens_per_req_for_target_verify(self, num_draft_tokens: int, is_draft_worker: bool) -> int:
        """The drafter always runs D tokens per request, the target the width it was asked for."""
        return compat.engine_block_size() if is_draft_worker else num_draft_tokens

    def handle_server_args(self, server_args) -> None:
        """Check the configuration before anything is loaded, then set the widths.

        Raises:
            StartRefused: with the setting to change.
        """
        shape = _checked(server_args)
        if shape.warning:
            logger.warning("%s", shape.warning)
        # The scheduler reserves max(steps * topk, draft tokens) slots: with these values max(D, W).
        server_args.speculative_num_steps = shape.block_size
        server_args.speculative_eagle_topk = 1
        server_args.speculative_dflash_block_size = shape.block_size
        server_args.speculative_num_draft_tokens = shape.engine_width
        server_args.enable_mixed_chunk = False
        if server_args.max_running_requests is None:
            server_args.max_running_requests = DEFAULT_MAX_RUNNING_REQUESTS


def _checked(server_args) -> settings.Settings:
    try:
        layouts.check(server_args)
        shape = read_settings(server_args)
        layouts.check_models(server_args)
        _choose_backends(server_args)
    except SettingsError as error:
        # Ends the process: a traceback would bury the one line that matters.
        raise StartRefused(str(error)) from None
    return shape


def read_settings(server_args) -> settings.Settings:
    """Settings of an engine from its (possibly already resolved) server arguments."""
    drafter = compat.hf_config(server_args, server_args.speculative_draft_model_path)
    return settings.read(
        server_args.speculative_dflash_block_size,
        server_args.speculative_num_draft_tokens,
        drafter.get("block_size") or (drafter.get("dflash_config") or {}).get("block_size"),
        server_args.speculative_draft_window_size,
    )


def _choose_backends(args) -> None:
    allowed = TREE_BACKENDS.get(args.device, ())
    if not allowed:
        raise SettingsError(f"DDTREE runs on --device {' or '.join(TREE_BACKENDS)}, not {args.device}")
    for name in ("attention_backend", "prefill_attention_backend", "decode_attention_backend"):
        chosen = getattr(args, name)
        if chosen is not None and chosen not in allowed:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(f"{flag} {chosen} cannot verify a tree: use {' or '.join(allowed)}")
    if args.speculative_draft_attention_backend not in (None, *allowed):
        raise SettingsError(
            f"--speculative-draft-attention-backend {args.speculative_draft_attention_backend} is not supported "
            f"with DDTREE: use {' or '.join(allowed)}"
        )
    args.speculative_draft_attention_backend = allowed[0]
