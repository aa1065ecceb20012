"""Time the attention of a verify pass at MLA shapes on the GPU and print one JSON document.

    PYTHONPATH=patches python tests/gpu/bench_verify.py > result.json
    PYTHONPATH=patches TRITON_INTERPRET=1 python tests/gpu/bench_verify.py --check     (without a GPU)

The kernel is the one that SGLang's Triton backend verifies with; the decode kernel, which AR runs, is timed beside it.
Both are first held against plain torch at a small shape, tree mask included. A time is that of one layer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import statistics
import sys
from dataclasses import dataclass

import ops_cases
import torch
import triton
from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd
from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd
from sglang_ddtree import ops
from sglang_ddtree.attention import verify_attention

LATENT, ROPE = 512, 64
CONTEXTS, WIDTHS, BATCHES = (1024, 4096, 16384, 65536), (1, 9, 17, 33), (1, 16)
HEADS = 16
DEPTHS, TOPK = 15, 8
SPLITS, SPLIT_ROWS = 256, 32
REPLAYS, MS_PER_SAMPLE = 21, 5.0
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


@dataclass
class Inputs:
    """One layer's verify pass of `batch` requests that all have `context` committed tokens.

    query: [batch * width, heads, LATENT + ROPE]; pool: [slots, 1, LATENT + ROPE], the nodes' rows already written;
    rows: int32 [batch, context]; nodes: int64 [batch, width], both slots; ancestors: bool [batch, width, width].
    """

    query: torch.Tensor
    pool: torch.Tensor
    rows: torch.Tensor
    nodes: torch.Tensor
    ancestors: torch.Tensor

    @classmethod
    def random(cls, batch: int, context: int, width: int, heads: int, device: str, dtype: torch.dtype) -> Inputs:
        rng = torch.Generator().manual_seed(width)
        slots = torch.randperm(batch * (context + width), generator=rng).view(batch, -1)
        query = torch.randn(batch * width, heads, LATENT + ROPE, generator=rng)
        pool = torch.randn(batch * (context + width), 1, LATENT + ROPE, generator=rng)
        ancestors = torch.eye(width, dtype=torch.bool)[None]
        if width > 1:
            log_probs = torch.randn(batch, DEPTHS, TOPK, generator=rng).mul(2).log_softmax(-1)
            log_probs = log_probs.sort(-1, descending=True).values.contiguous()
            token_ids = torch.arange(DEPTHS * TOPK).reshape(1, DEPTHS, TOPK).repeat(batch, 1, 1)
            tree = ops.build_tree(log_probs, token_ids, torch.zeros(batch, dtype=torch.int64), width - 1)
            ancestors = ops.finalize(tree, torch.full((batch,), context))[1].bool()
        ancestors = ancestors.expand(batch, -1, -1).contiguous()
        parts = query.to(dtype), pool.to(dtype), slots[:, :context].int(), slots[:, context:], ancestors
        return cls(*(part.contiguous().to(device) for part in parts))

    def lens(self) -> torch.Tensor:
        """int64 [batch], committed tokens."""
        batch, context = self.rows.shape
        return torch.full((batch,), context, device=self.rows.device)

    def verify(self):
        """Output [batch * width, heads, LATENT], and a function that computes it by the extend kernel."""
        batch, width = self.nodes.shape
        lens, device = self.lens(), self.rows.device
        indptr = ops_cases.mask_indptr(lens, width)
        mask = torch.zeros(int(indptr[-1]), dtype=torch.uint8, device=device)
        ops.write_mask_tails(mask, indptr, lens, self.ancestors)
        latents = self.pool[self.nodes.flatten()].contiguous()
        out = self.query.new_empty(*self.query.shape[:2], LATENT)
        starts = torch.arange(batch + 1, device=device, dtype=torch.int32)
        queries, keys = starts * width, starts * self.rows.shape[1]
        slots = self.rows.flatten().long()
        tensors = (self.query, latents, latents[..., :LATENT].contiguous(), out, self.pool, self.pool[..., :LATENT])

        def run():
            extend_attention_fwd(
                *tensors, queries, keys, slots, mask, True, indptr, width, 1.0, 1.0, (LATENT + ROPE) ** -0.5
            )

        return out, run

    def decode(self):
        """The same for a plain decode step, whose one token is the first node."""
        batch, width = self.nodes.shape
        heads, device = self.query.shape[1], self.rows.device
        slots = torch.cat([self.rows.long(), self.nodes[:, :1]], dim=1)
        starts = torch.arange(batch + 1, device=device, dtype=torch.int32) * slots.shape[1]
        query = self.query.view(batch, width, heads, -1)[:, 0].contiguous()
        out = query.new_empty(batch, heads, LATENT)
        scratch = torch.empty(batch, heads, SPLITS, LATENT, device=device)
        lse = torch.empty(batch, heads, SPLITS, device=device)
        # As the backend does at long context: no split shorter than a few rows.
        count = min(SPLITS, max(1, slots.shape[1] // SPLIT_ROWS))
        splits = torch.full((batch,), count, dtype=torch.int32, device=device)
        tensors = (
            query,
            self.pool,
            self.pool[..., :LATENT],
            out,
            starts,
            slots.flatten(),
            scratch,
            lse,
            splits,
            SPLITS,
        )

        def run():
            decode_attention_fwd(*tensors, (LATENT + ROPE) ** -0.5, 1.0, 1.0, has_mla=True)

        return out, run

    def expected(self) -> torch.Tensor:
        """[batch, width, heads, LATENT] in float32, by plain torch."""
        batch, width = self.nodes.shape
        query, pool = self.query.float().view(batch, width, *self.query.shape[1:]), self.pool.float()
        pools = pool, pool[..., :LATENT]
        scale = (LATENT + ROPE) ** -0.5
        return verify_attention(query, *pools, self.rows, self.lens(), self.nodes, self.ancestors, True, scale)


def check(device: str, dtype: torch.dtype, heads: int, context: int) -> None:
    """Raise AssertionError where a kernel is off; every width, two requests."""
    for width in WIDTHS:
        inputs = Inputs.random(2, context, width, heads, device, dtype)
        expected = inputs.expected()
        out, run = inputs.verify()
        run()
        torch.testing.assert_close(out.float().view_as(expected), expected, rtol=0, atol=TOLERANCE[dtype])
        if width == 1:
            out, run = inputs.decode()
            run()
            torch.testing.assert_close(out.float(), expected[:, 0], rtol=0, atol=TOLERANCE[dtype])


def milliseconds(run) -> float:
    """Median time of one launch, over samples of several launches each."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    first = _timed(run, 1)
    launches = max(1, min(50, int(MS_PER_SAMPLE / first)))
    return round(statistics.median(_timed(run, launches) for _ in range(REPLAYS)), 5)


def _timed(run, launches: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(launches):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / launches


def measure() -> list[dict]:
    rows = []
    for batch in BATCHES:
        for context in CONTEXTS:
            for width in WIDTHS:
                inputs = Inputs.random(batch, context, width, HEADS, "cuda", torch.bfloat16)
                row = {
                    "batch": batch,
                    "context": context,
                    "width": width,
                    "verify_ms": milliseconds(inputs.verify()[1]),
                }
                if width == 1:
                    row["decode_ms"] = milliseconds(inputs.decode()[1])
                once = batch * context * (LATENT + ROPE) * 2
                rows.append(row | {"prefix_gb": once / 1e9, "once_gb_per_s": round(once / 1e6 / row["verify_ms"], 1)})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="hold the kernels against plain torch, time nothing")
    args = parser.parse_args()
    if args.check and os.environ.get("TRITON_INTERPRET"):
        check("cpu", torch.float32, heads=2, context=70)
        print(f"the kernels agree with plain torch at widths {WIDTHS}")
        return 0
    if not torch.cuda.is_available():
        print("bench_verify needs a CUDA GPU, and torch.cuda.is_available() is false: use --check", file=sys.stderr)
        return 1
    check("cuda", torch.bfloat16, HEADS, context=300)
    if args.check:
        return 0
    document = {
        "what": "attention of a verify pass with MLA, one layer",
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([sys.executable.rpartition("/")[2], *sys.argv]),
        "unit": f"milliseconds per launch, median of {REPLAYS} samples",
        "shape": {"heads": HEADS, "latent": LATENT, "rope": ROPE, "dtype": "bfloat16"},
        "rows": measure(),
    }
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
