"""Which targets can verify a tree."""

import pytest
from sglang_ddtree.targets import unsupported


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama"},
        {"model_type": "qwen3", "layer_types": ["full_attention"] * 4, "sliding_window": 4096},
        {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False},
        {"model_type": "kimi_k25", "text_config": {"model_type": "deepseek_v3", "kv_lora_rank": 512}},
    ],
)
def test_full_attention_targets_are_supported(config):
    assert unsupported(config) is None


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"sliding_window": 4096}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"text_config": {"layer_types": ["linear_attention", "full_attention"]}}, "recurrent"),
        ({"full_attention_interval": 4}, "recurrent"),
    ],
)
def test_other_targets_are_refused_with_the_reason(config, word):
    assert word in unsupported(config)
