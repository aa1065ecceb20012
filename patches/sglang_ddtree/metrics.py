"""Counters of the decode steps, exported with SGLang's own metrics.

A step that runs eager although graphs were captured is right but slow, and nothing else shows it.
"""


class StepCounters:
    """`count(eager)` after each decode step.

    Counts nothing without --enable-metrics, nor on any rank but 0, which takes the same steps.
    """

    def __init__(self, server_args, rank: int):
        self.steps = self.eager = None
        if not server_args.enable_metrics or rank > 0:
            return
        # Imported late: the multiprocess folder must be set first, which SGLang does at start.
        from prometheus_client import Counter

        labels = {"model_name": server_args.served_model_name}
        names = list(labels)
        self.steps = Counter("sglang:ddtree_steps", "Decode steps of the tree engine", names).labels(**labels)
        self.eager = Counter(
            "sglang:ddtree_eager_steps", "Decode steps that ran eager although CUDA graphs were captured", names
        ).labels(**labels)

    def count(self, eager: bool) -> None:
        if self.steps is None:
            return
        self.steps.inc()
        if eager:
            self.eager.inc()
