"""Entry point of SGLang's plugin loader; runs in every process of a server."""

import logging

logger = logging.getLogger(__name__)


def load() -> None:
    """Check the patched engine, then register the algorithm. Refuses by raising, before any model is loaded."""
    from sglang_ddtree import compat, selfcheck

    selfcheck.check_patches()
    compat.prepare_process()
    _hide_keys()
    _register()


def _hide_keys() -> None:
    """Keep the API keys out of the log: SGLang prints all its settings at start."""
    from sglang.srt.server_args import ServerArgs

    shown = ServerArgs.__repr__

    def without_keys(self) -> str:
        text = shown(self)
        for key in filter(None, (self.api_key, self.admin_api_key)):
            text = text.replace(repr(key), repr("***"))
        return text

    if shown.__name__ != without_keys.__name__:
        ServerArgs.__repr__ = without_keys


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
