"""Counters of the decode steps, kept by tier and exported with SGLang's own metrics.

A step that runs eager although graphs were captured is right but slow, and nothing else shows it.
"""

from collections import deque

UNITS = ("steps", "requests", "tokens")


class StepCounters:
    """`launched` after each decode step, `committed` once its result is on the host, in the same order.

    Exports with --enable-metrics, and on rank 0 alone: the others take the same steps.
    """

    def __init__(self, server_args, tiers, rank: int):
        self.by_tier = {tier.name: dict.fromkeys(UNITS, 0) for tier in tiers}
        self.in_flight: deque[str] = deque()
        self.exported = Exported(server_args, tiers) if server_args.enable_metrics and rank == 0 else None

    def launched(self, tier, requests: int, eager: bool) -> None:
        """Count a step of a tier; `eager` says that it ran outside the captured graphs."""
        self.in_flight.append(tier.name)
        counts = self.by_tier[tier.name]
        counts["steps"] += 1
        counts["requests"] += requests
        if self.exported:
            self.exported.launched(tier, eager)

    def committed(self, tokens: int) -> None:
        """Count what the oldest step whose result was not counted yet has committed, its bonus tokens included."""
        name = self.in_flight.popleft()
        self.by_tier[name]["tokens"] += tokens
        if self.exported:
            self.exported.tokens[name].inc(tokens)


class Exported:
    """The same for Prometheus."""

    def __init__(self, server_args, tiers):
        # Imported late: the multiprocess folder must be set first, which SGLang does at start.
        from prometheus_client import Counter, Gauge

        model = {"model_name": server_args.served_model_name}
        names = [tier.name for tier in tiers]

        def by_tier(name: str, text: str) -> dict:
            counter = Counter(name, text, [*model, "tier"])
            return {tier: counter.labels(**model, tier=tier) for tier in names}

        self.steps = Counter("sglang:ddtree_steps", "Decode steps of the tree engine", list(model)).labels(**model)
        self.eager = Counter(
            "sglang:ddtree_eager_steps", "Decode steps that ran eager although CUDA graphs were captured", list(model)
        ).labels(**model)
        self.tier_steps = by_tier("sglang:ddtree_tier_steps", "Decode steps by tier: a tree's budget, chain or ar")
        self.tokens = by_tier("sglang:ddtree_tier_tokens", "Tokens that the steps of a tier committed")
        width = "Nodes per request in the last decode step, 1 without speculation"
        self.width = Gauge("sglang:ddtree_width", width, list(model), multiprocess_mode="mostrecent").labels(**model)

    def launched(self, tier, eager: bool) -> None:
        self.steps.inc()
        self.tier_steps[tier.name].inc()
        self.width.set(tier.shape.width)
        if eager:
            self.eager.inc()
