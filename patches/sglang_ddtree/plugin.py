"""Entry point of SGLang's plugin loader; runs in every process of a server."""

import logging

logger = logging.getLogger(__name__)


def load() -> None:
    """Check the patched engine, then register the algorithm. Refuses by raising, before any model is loaded."""
    from sglang_ddtree import compat, selfcheck

    selfcheck.check_patches()
    compat.prepare_process()
    _register()


def _register() -> None:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from sglang_ddtree.algorithm import NAME, DDTreeAlgorithm

    @SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=DDTreeAlgorithm)
    def worker_class(server_args):
        # Imported late: the worker pulls in the model code, which the tokenizer process never needs.
        from sglang_ddtree import hooks
        from sglang_ddtree.worker import DDTreeWorker

        hooks.install(server_args.device)
        return DDTreeWorker
