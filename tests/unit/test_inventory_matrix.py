"""The compatibility matrix refuses each kind of wrong combination, with the reason and the setting to change."""

import ast
import json
from pathlib import Path

import pytest
import yaml

from tests.unit.loading import load_file

ROOT = Path(__file__).parents[2]
ANSIBLE = ROOT / "ansible"
MATRIX = yaml.safe_load((ANSIBLE / "compatibility.yml").read_text(encoding="utf-8"))
GENERATIONS = sorted(MATRIX["generations"])
FIRST, SECOND = "GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222"
ENGINE = {"block_size": 8, "budget": 15, "top_k": 8, "max_running_requests": 8, "max_total_tokens": 65536}
PAIR = {
    "name": "smollm2-135m",
    "engine": {"cpu": ENGINE, "cuda": ENGINE | {"dtype": "bfloat16"}},
    "target": {"bytes": 2**30},
    "drafter": {"bytes": 2**28},
}


def load(name: str):
    path = ANSIBLE / "roles" / "preflight" / "filter_plugins" / f"{name}.py"
    return load_file(path)


layout, engine, memory, stack = map(load, ["layout_refusals", "engine_refusals", "memory_refusals", "stack_refusals"])


def group_vars(generation: str) -> dict:
    return yaml.safe_load((ANSIBLE / "group_vars" / f"{generation}.yml").read_text(encoding="utf-8"))


def instance(generation: str = "sm90", **keys) -> dict:
    """An instance with its generation's defaults, right unless `keys` make it wrong."""
    return group_vars(generation)["sglang_defaults"] | {"name": "one", "pair": PAIR["name"], "gpus": [FIRST]} | keys


def engine_reasons(generation: str = "sm90", **keys) -> list[str]:
    return engine.engine_refusals([instance(generation, **keys)], generation, MATRIX, [PAIR])


def memory_reasons(gpu_gib: float, **keys) -> list[str]:
    return memory.memory_refusals([instance(**keys)], MATRIX, [PAIR], gpu_gib)


def stack_reasons(
    generation: str = "sm90",
    driver: str | None = None,
    toolkit: str = "1.18.2",
    open_modules: bool | None = None,
    **image,
) -> list[str]:
    shipped = group_vars(generation)
    found = {"driver": driver or shipped["nvidia_driver_version"], "toolkit": toolkit}
    found |= {"open": shipped["nvidia_driver_open"] if open_modules is None else open_modules}
    return stack.stack_refusals(found | {"image": shipped["gpu_image"] | image}, generation, MATRIX)


def test_every_generation_has_defaults_that_are_right():
    inventory_groups = {path.stem for path in (ANSIBLE / "group_vars").glob("sm*.yml")}
    assert inventory_groups == set(GENERATIONS)
    for generation in GENERATIONS:
        shipped = group_vars(generation)
        assert stack_reasons(generation) == []
        assert engine_reasons(generation) == []
        assert memory.memory_refusals([instance(generation)], MATRIX, [PAIR], shipped["gpu_memory_gib"]) == []
        assert shipped["container_toolkit_version"] not in MATRIX["container_toolkit"]["denied"]


def test_the_matrix_says_of_the_tree_what_the_engine_does():
    source = (ROOT / "patches" / "sglang_ddtree" / "algorithm.py").read_text(encoding="utf-8")
    backends = next(
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "TREE_BACKENDS"
    )
    assert tuple(MATRIX["algorithms"]["tree"]["attention_backends"]) == backends["cuda"]
    settings = (ROOT / "patches" / "sglang_ddtree" / "settings.py").read_text(encoding="utf-8")
    assert f"MAX_BUDGET = {MATRIX['max_budget']}\n" in settings


def test_kv_bytes_of_the_embedded_pair_are_those_of_its_shapes():
    """Target: 30 layers, 3 key-value heads of 64; the drafter's shapes stand in its config; bfloat16, K and V."""
    pair = yaml.safe_load((ROOT / "models" / "pairs" / "smollm2-135m.yaml").read_text(encoding="utf-8"))
    folder = ROOT / "models" / "pairs" / pair["drafter"]["source"]["path"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    drafter = config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    known = MATRIX["memory"]["pairs"]["smollm2-135m"]
    assert known["kv_bytes_per_token"] == 2 * 2 * (config["num_target_layers"] * 3 * 64 + drafter)
    assert known["vocab_size"] == config["vocab_size"]


def test_two_instances_on_their_own_gpus_are_taken():
    assert layout.layout_refusals([instance(), instance(name="two", gpus=[SECOND])]) == []
    assert layout.layout_refusals([instance(gpus=[0]), instance(name="two", gpus=["1"])]) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"dp": 4},
        {"pp": 4},
        {"pp": 2, "dp": 2},
        {"tp": 4, "ep": 4},
        {"tp": 4, "dp": 4, "dp_attention": True},
        {"tp": 4, "dp": 2, "dp_attention": True, "ep": 4},
    ],
)
def test_every_layout_is_open_to_a_server_without_speculation(keys):
    server = instance(pair="kimi", algorithm="ar", gpus=[0, 1, 2, 3], **keys)
    assert layout.layout_refusals([server]) == []
    assert engine.engine_refusals([server], "sm90", MATRIX, [PAIR | {"name": "kimi"}]) == []


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([instance(), instance(name="two")], f"GPU {FIRST} is in instances one and two: take it out of gpus"),
        ([instance(gpus=[0]), instance(name="two", gpus=["0"])], "GPU 0 is in instances one and two"),
        ([instance(gpus=[0]), instance(name="two", gpus=[SECOND])], "by index here and by UUID there: set gpus"),
        ([instance(gpus=[])], "one has no GPU: set gpus"),
        ([instance(gpus=[0, 0], tp=2)], "names a GPU twice in gpus (0, 0)"),
        ([instance(gpus=["all"])], "one has all in gpus: name a GPU by its index, or by its UUID"),
        ([instance(gpus=[0, 1])], "tp 1 x pp 1 x dp 1 = 1 ranks on 2 GPUs: set tp, pp, dp so that their product"),
        ([instance(gpus=[0, 1], tp=2, dp=2)], "tp 2 x pp 1 x dp 2 = 4 ranks on 2 GPUs"),
        (
            [instance(gpus=[0, 1, 2, 3], tp=2, dp=2, dp_attention=True)],
            "tp 2 x pp 1 = 2 ranks on 4 GPUs: set tp, pp so",
        ),
        ([instance(gpus=[0, 1], tp=2, dp_attention=True)], "dp_attention with dp 1 and tp 2: set dp to a div"),
        ([instance(gpus=[0, 1, 2], tp=3, dp=2, dp_attention=True)], "dp 2 and tp 3: set dp to a divisor of tp"),
        ([instance(gpus=[0, 1, 2, 3], tp=4, ep=2)], "one has ep 2: set it to 1 or to its tp, 4"),
    ],
)
def test_wrong_gpu_sets_are_refused(instances, message):
    reasons = layout.layout_refusals(instances)
    assert len(reasons) == 1
    assert message in reasons[0]


@pytest.mark.parametrize(
    ("generation", "keys", "message"),
    [
        (
            "sm100",
            {"attention_backend": "trtllm_mha", "page_size": 16},
            "cannot verify the drafts of algorithm tree: set it to triton",
        ),
        (
            "sm120",
            {"attention_backend": "trtllm_mha", "algorithm": "ar", "page_size": 64},
            "does not run on sm120: set it to triton or flashinfer",
        ),
        ("sm100", {"attention_backend": "fa3", "algorithm": "ar"}, "does not run on sm100: set it to triton or flash"),
        ("sm90", {"attention_backend": "flashinfer", "algorithm": "chain"}, "of algorithm chain: set it to triton"),
        ("sm90", {"page_size": 32}, "page_size 32 does not go with algorithm tree on triton: set it to 1 or 16 or 64"),
        (
            "sm100",
            {"algorithm": "ar", "attention_backend": "trtllm_mha"},
            "page_size 1 does not go with algorithm ar on trtllm_mha: set it to 16 or 32 or 64",
        ),
        (
            "sm90",
            {"tp": 3, "algorithm": "chain"},
            "tp 3 does not go with algorithm chain: set tp to 1 or 2, or algorithm to ar",
        ),
        ("sm90", {"pp": 2}, "pipeline stages do not exchange): set pp to 1, or algorithm to ar"),
        ("sm90", {"pp": 2, "algorithm": "chain"}, "pp 2 does not go with algorithm chain (the drafter reads hidden"),
        ("sm90", {"dp": 2}, "dp 2 does not go with algorithm tree: set dp to 1, or algorithm to ar"),
        ("sm90", {"pp": 3, "algorithm": "ar"}, "pp 3 does not go with algorithm ar: set pp to 1 or 2 or 4 or 8"),
        (
            "sm90",
            {"tp": 2, "dp_attention": True},
            "dp_attention true does not go with algorithm tree (candidates are gathered from ranks that draft for the "
            "same requests): set dp_attention to false, or algorithm to ar",
        ),
        (
            "sm90",
            {"tp": 2},
            "tp 2 does not share out the 9 attention heads (3 for keys and values) of pair smollm2-135m: ranks of one "
            "attention can be 1 or 3 or 9, more GPUs take pp or dp",
        ),
        ("sm90", {"tp": 8, "dp": 2, "dp_attention": True, "algorithm": "ar"}, "tp 8 does not share out the 9"),
        ("sm90", {"budget": 128, "top_k": 8}, "budget 128 is more than a tree of top_k 8"),
        ("sm90", {"budget": 15, "top_k": 1}, "set budget to at most 7"),
        ("sm90", {"tiers": {1: 15, 4: 8}, "top_k": 1}, "budget 15 is more than a tree of top_k 1"),
        ("sm90", {"draft_window": 4}, "draft_window 4 is shorter than one block: set it to at least 8"),
        ("sm90", {"extra_args": "--tp-size=2"}, "extra_args has --tp-size: take it out and set tp"),
        ("sm90", {"extra_args": "--host 0.0.0.0"}, "extra_args has --host: take it out and set expose"),
        ("sm90", {"extra_args": "--attention-b fa3"}, "take it out and set attention_backend"),
        ("sm90", {"extra_args": "--enable-dp-attention"}, "take it out and set dp_attention"),
        ("sm90", {"extra_args": "--attn-dp-size 2"}, "take it out and set dp_attention"),
        ("sm90", {"extra_args": "--dp 2"}, "extra_args has --dp: take it out and set dp"),
        ("sm90", {"extra_args": "--lora-paths a=b"}, "which does not go with algorithm tree: take it out"),
        ("sm90", {"extra_args": "--enable-lora"}, "which does not go with algorithm tree: take it out"),
        ("sm90", {"extra_args": "--speculative-accept-threshold-single 0.9"}, "does not go with algorithm tree"),
        ("sm90", {"extra_args": "'"}, "extra_args cannot be read"),
        ("sm90", {"expose": True}, "expose is true without a key: set api_key_file"),
        ("sm90", {"algorithm": "ar", "pp": 4, "shm_gib": 0.0625}, "too little for the collectives of 4 GPUs: set at l"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(generation, keys, message):
    reasons = engine_reasons(generation, **keys)
    assert len(reasons) == 1
    assert reasons[0].startswith("instance one: ")
    assert message in reasons[0]


def test_what_speculation_cannot_do_is_open_to_a_server_without_it():
    assert engine_reasons("sm90", algorithm="ar", pp=2, attention_backend="fa3", extra_args="--enable-lora") == []


def test_a_pair_without_settings_for_gpus_is_refused():
    pair = PAIR | {"engine": {"cpu": ENGINE}}
    reasons = engine.engine_refusals([instance()], "sm90", MATRIX, [pair])
    assert reasons == ["instance one: model pair smollm2-135m is validated for cpu only: choose another pair"]


@pytest.mark.parametrize(
    ("gpu_gib", "keys", "message"),
    [
        (4, {}, "no mem_fraction fits; lower max_running_requests, then max_total_tokens"),
        (80, {"max_total_tokens": 4_000_000}, "no mem_fraction fits"),
        (80, {"max_total_tokens": 2_900_000}, "set mem_fraction to at least 0.88, or lower max_total_tokens"),
        (80, {"max_running_requests": 9000}, "lower max_running_requests or budget, or set mem_fraction to at most"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(gpu_gib, keys, message):
    reasons = memory_reasons(gpu_gib, **keys)
    assert len(reasons) == 1
    assert message in reasons[0]


def test_the_named_memory_fraction_is_the_cure():
    keys = {"max_total_tokens": 2_900_000}
    assert memory_reasons(80, **keys)
    assert memory_reasons(80, **keys, mem_fraction=0.88) == []


def test_memory_counts_the_budget_and_spreads_over_gpus():
    assert memory_reasons(80, max_running_requests=4000) == []
    assert memory_reasons(80, max_running_requests=4000, budget=63)
    assert memory_reasons(80, max_running_requests=4000, tiers={1: 63, 8: "chain", 16: "ar"})
    assert memory_reasons(80, max_running_requests=4000, tiers={1: "chain", 16: "ar"}) == []
    assert memory_reasons(24, max_total_tokens=1_000_000, algorithm="ar")
    assert memory_reasons(24, max_total_tokens=1_000_000, algorithm="ar", pp=2) == []
    assert memory_reasons(24, max_total_tokens=1_000_000, algorithm="ar", tp=2) == []


def test_memory_counts_the_copies_of_key_value_heads():
    """The pair has three: nine ranks hold three copies of each, and two attention groups split less than all ranks."""
    tokens = {"max_total_tokens": 2_000_000, "algorithm": "ar"}
    assert memory_reasons(24, **tokens, tp=3) == []
    assert memory_reasons(16, **tokens, tp=9)
    assert memory_reasons(24, **tokens, tp=6, dp=6, dp_attention=True)


def test_heads_are_those_of_the_embedded_pair():
    found = json.loads((ROOT / "models/drafters/smollm2-135m-dflash-b8/config.json").read_text(encoding="utf-8"))
    heads = {"attention": found["num_attention_heads"], "key_value": found["num_key_value_heads"]}
    assert MATRIX["heads"] == {"smollm2-135m": heads}


def test_a_pair_of_unknown_memory_is_refused():
    pair = PAIR | {"name": "other"}
    reasons = memory.memory_refusals([instance(pair="other")], MATRIX, [pair], 80)
    assert "add it to memory.pairs in ansible/compatibility.yml" in reasons[0]


@pytest.mark.parametrize(
    ("generation", "found", "message"),
    [
        ("sm120", {"compute_capabilities": ["9.0"]}, "built for compute capability 9.0, sm120 (RTX PRO 6000"),
        ("sm103", {"compute_capabilities": ["10.0"]}, "sm103 (B300) has 10.3: set sglang_image"),
        ("sm90", {"cuda": "11.8"}, "the image has CUDA 11.8: set sglang_image to one with CUDA 12 or 13"),
        (
            "sm90",
            {"driver": "575.57.08"},
            "too old for an image with CUDA 13.0: set nvidia_driver_version to 580.65.06",
        ),
        ("sm103", {"driver": "570.133.20"}, "driver 570.133.20 does not know sm103 (B300)"),
        (
            "sm120",
            {"driver": "575.57.08", "compat_driver": "580.65.06"},
            "(its compatibility libraries need data-centre GPUs)",
        ),
        ("sm90", {"driver": "590.44.01", "compat_driver": "580.95.05"}, "(error 803): set sglang_image to one without"),
        ("sm100", {"open_modules": False}, "B200 have no driver but the open kernel modules: set nvidia_driver_open"),
        ("sm90", {"toolkit": "1.16.1"}, "toolkit 1.16.1 lets a container take the host (CVE-2024-0132"),
        ("sm90", {"toolkit": "1.17.7-1"}, "CVE-2025-23266): set container_toolkit_version to 1.17.8 or later"),
        ("sm90", {"toolkit": "1.19.1"}, "toolkit 1.19.1 breaks CUDA initialisation"),
    ],
)
def test_software_that_does_not_go_together_is_refused(generation, found, message):
    reasons = stack_reasons(generation, **found)
    assert len(reasons) == 1
    assert message in reasons[0]


@pytest.mark.parametrize(
    ("generation", "found"),
    [
        ("sm90", {"driver": "570.133.20", "cuda": "12.9"}),
        ("sm90", {"driver": "575.57.08", "compat_driver": "580.65.06"}),
        ("sm90", {"driver": "590.44.01"}),
        ("sm90", {"open_modules": True}),
        ("sm120", {"driver": "590.44.01", "cuda": "12.8"}),
        ("sm90", {"toolkit": "1.17.8-1"}),
        ("sm90", {"toolkit": "1.20.0"}),
    ],
)
def test_software_that_goes_together_is_taken(generation, found):
    assert stack_reasons(generation, **found) == []
