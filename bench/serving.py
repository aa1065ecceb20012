"""Latency under load by SGLang's own load generator (`sglang.benchmark.serving`), in a closed and an open loop."""

from __future__ import annotations

import contextlib
import json
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bench.errors import BenchError
from bench.stats import interval

OPEN_LOOP_SHARE = 0.7  # of the closed loop's request rate: under load, and not yet drowning
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Slo:
    """What a request must keep to count as good: seconds to its first token, seconds per token after it."""

    ttft_s: float
    tpot_s: float


def check() -> None:
    """Raises BenchError where SGLang's generator cannot be imported."""
    _generator()


def loops(url: str, target: str, prompts: Sequence[str], tokens: int, concurrency: int, slo: Slo, log: Path) -> dict:
    """Results of a closed loop of `concurrency` requests and of an open loop below its rate, by name.

    prompts: one per request, none twice, so that each is prefilled. tokens: of every answer. log: gets the generator's
    own output. Raises BenchError when a request fails.
    """
    dataset = log.with_suffix(".jsonl")
    turns = [{"conversations": [{"value": prompt}, {"value": "-"}]} for prompt in prompts]
    dataset.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    common = {"url": url, "target": target, "dataset": dataset, "count": len(prompts), "tokens": tokens}
    closed = summary(_generate(log, **common, concurrency=concurrency, rate=float("inf")), slo)
    rate = OPEN_LOOP_SHARE * closed["requests_per_s"]
    return {"closed": closed, "open": summary(_generate(log, **common, concurrency=None, rate=rate), slo)}


def summary(result: dict, slo: Slo) -> dict:
    """From the generator's result with details. Times in milliseconds; goodput is requests per second within `slo`."""
    failed = [error for error in result["errors"] if error]
    if failed or not result["ttfts"]:
        raise BenchError(
            f"{len(failed)} requests of the load generator failed: {(failed or ['none was sent'])[0]:.300}"
        )
    ttft = np.array(result["ttfts"])
    decode = np.array([sum(gaps) for gaps in result["itls"]])
    tpot = decode / np.maximum(np.array(result["output_lens"]) - 1, 1)
    good = int(np.sum((ttft <= slo.ttft_s) & (tpot <= slo.tpot_s)))
    gaps = np.concatenate([np.array(gaps) for gaps in result["itls"]])
    rate = result["request_rate"]
    return {
        "requests": len(ttft),
        "offered_per_s": None if rate == float("inf") else round(rate, 4),
        "requests_per_s": round(result["request_throughput"], 4),
        "tokens_per_s": round(result["output_throughput"], 2),
        "ttft_ms": _spread(ttft),
        "tpot_ms": _spread(tpot),
        "itl_ms": _spread(gaps),
        "ttft_ms_interval": interval((ttft * 1000).round(2).tolist()),
        "tpot_ms_interval": interval((tpot * 1000).round(2).tolist()),
        "slo": {"ttft_ms": slo.ttft_s * 1000, "tpot_ms": slo.tpot_s * 1000},
        "goodput_per_s": round(good / result["duration"], 4),
        "good": good,
    }


def _spread(seconds: np.ndarray) -> dict[str, float]:
    return {f"p{p}": round(float(np.percentile(seconds, p)) * 1000, 2) for p in PERCENTILES}


def _generate(log: Path, *, url, target, dataset, count, tokens, concurrency, rate) -> dict:
    """One run of the generator, in this process: importing it takes longer than most runs."""
    settings = SimpleNamespace(
        backend="sglang",
        base_url=url,
        host="127.0.0.1",
        port=None,
        ready_check_timeout_sec=0,
        model=target,
        tokenizer=target,
        dataset_name="custom",
        dataset_path=str(dataset),
        num_prompts=count,
        sharegpt_output_len=tokens,
        sharegpt_context_len=None,
        random_input_len=None,
        random_output_len=None,
        random_range_ratio=None,
        prompt_suffix="",
        apply_chat_template=False,
        request_rate=rate,
        max_concurrency=concurrency,
        seed=0,
        disable_tqdm=True,
        disable_stream=False,
        disable_ignore_eos=False,
        return_routed_experts=False,
        extra_request_body=None,
        lora_name=None,
        lora_request_distribution=None,
        lora_zipf_alpha=1.5,
        profile=False,
        pd_separated=False,
        flush_cache=True,
        warmup_requests=1,
        output_file=str(log.with_suffix(".results.jsonl")),
        output_details=True,
    )
    with log.open("a") as output, contextlib.redirect_stdout(output):
        return _generator().run_benchmark(settings)


def _generator():
    """SGLang's module. It imports Hugging Face's `datasets` for public sets that are not used here."""
    if "sglang.benchmark.serving" not in sys.modules:
        try:
            import datasets  # noqa: F401
        except ImportError:
            absent = types.ModuleType("datasets")
            absent.load_dataset = None
            sys.modules["datasets"] = absent
            try:
                return _import_generator()
            finally:
                # Others look for it to decide whether it is installed.
                del sys.modules["datasets"]
    return _import_generator()


def _import_generator():
    try:
        import sglang.benchmark.serving as serving
    except ImportError as error:
        raise BenchError(
            f"SGLang's load generator cannot be imported ({error}): use --serving-requests 0 to measure without it"
        ) from None
    return serving
