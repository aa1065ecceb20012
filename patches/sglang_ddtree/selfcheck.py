"""Checks at start: the engine serves only when every patch, hook and width is what it must be.

A failed check ends the process with one line. `SystemExit` is used because SGLang's plugin loader logs every
`Exception` of a plugin and goes on.
"""

import hashlib
import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from sglang_ddtree import targets

MANIFESTS = Path(__file__).resolve().parent / "manifests"


class StartRefused(SystemExit):
    """Ends the process with a message on stderr and exit code 1."""

    def __init__(self, reason: str):
        super().__init__(f"DDTREE refuses to start: {reason}")


def load_manifest() -> dict:
    """The manifest of the installed SGLang: patches and files with their sha256."""
    found = version("sglang")
    path = MANIFESTS / f"{found}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in MANIFESTS.glob("*.json")))
        raise StartRefused(f"SGLang {found} is not supported, install one of {known}")
    return json.loads(path.read_text())


def series_hash(manifest: dict) -> str:
    """Short name of a patch series: the first 12 hex digits of the sha256 over its patches' hashes."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in manifest["patches"].items())
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def installed_series() -> str:
    """Hash of the series of the installed SGLang, which `check_patches` compared its files with."""
    return series_hash(load_manifest())


def check_patches() -> str:
    """Compare every patched file with the manifest.

    Returns:
        The hash of the series in use.

    Raises:
        StartRefused: naming the first file that is not what the series makes of it.
    """
    manifest = load_manifest()
    site = Path(find_spec("sglang").origin).parent.parent
    for name, expected in manifest["files"].items():
        digest = hashlib.sha256((site / name).read_bytes()).hexdigest()
        if digest == expected["after"]:
            continue
        state = "is not patched" if digest == expected["before"] else "was changed"
        raise StartRefused(f"{name} {state}: apply the patch series (patches/apply.py) or rebuild the image")
    return series_hash(manifest)


def check_target(runner) -> None:
    """The loaded target must have only layers that a tree can be verified on, whatever its config calls them.

    Raises:
        StartRefused: with the reason.
    """
    # Imported late: the start's check of the patches runs in processes that load no model.
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.layers.radix_attention import RadixAttention

    attention = (layer for layer in runner.model.modules() if isinstance(layer, RadixAttention))
    reason = targets.SLIDING if any(layer.sliding_window_size > 0 for layer in attention) else None
    if mambaish_config(runner.model_config) is not None:
        reason = targets.RECURRENT
    if reason:
        path = runner.model_config.model_path
        raise StartRefused(f"--model-path {path} cannot be served: {reason}; serve it without speculation")


def check_widths(worker) -> None:
    """The target must run each tier at its W and the drafter at D, in settings, attention backends and graphs.

    Raises:
        StartRefused: naming the part and both widths.
    """
    shape = worker.settings
    for who, runner, width in (
        ("target", worker.model_runner, shape.engine_width),
        ("drafter", worker.draft_model_runner, shape.block_size),
    ):
        _same(f"{who} engine", runner.decode_num_tokens_per_req(), width)
    _same("drafter block", worker.block_size, shape.block_size)
    drafter = worker.draft_model_runner
    _check_part("drafter", drafter.attn_backend, drafter.decode_cuda_graph_runner, shape.block_size)
    for engine in worker.tiers.by_name.values():
        who = f"tier {engine.tier.name}: target" if shape.table else "target"
        _check_part(who, engine.backend, engine.graphs, engine.tier.shape.width)


def _check_part(who: str, backend, graphs, width: int) -> None:
    _same(f"{who} attention backend ({type(backend).__name__})", getattr(backend, "num_draft_tokens", width), width)
    # A runner without graphs captured none.
    _same(f"{who} CUDA graphs", getattr(graphs, "captured_req_width", width), width)


def _same(part: str, found, wanted: int) -> None:
    if found != wanted:
        raise StartRefused(f"the {part} runs {found} tokens per request and must run {wanted}")
