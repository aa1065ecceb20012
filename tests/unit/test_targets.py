"""Which targets can verify a tree."""

import pytest
from sglang_ddtree.targets import tensor_parallel_sizes, unsupported


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
        ({"model_type": "falcon_h1", "mamba_d_state": 256}, "recurrent"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"}, "recurrent"),
        ({"model_type": "kimi_linear", "linear_attn_config": {"kda_layers": [1]}}, "recurrent"),
        ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}, "recurrent"),
    ],
)
def test_other_targets_are_refused_with_the_reason(config, word):
    assert word in unsupported(config)


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ({"num_attention_heads": 9, "num_key_value_heads": 3}, [1, 3, 9]),
        ({"num_attention_heads": 12, "num_key_value_heads": 4}, [1, 2, 4, 12]),
        ({"num_attention_heads": 8}, [1, 2, 4, 8]),
        (
            {"text_config": {"num_attention_heads": 64, "kv_lora_rank": 512, "num_key_value_heads": 64}},
            [1, 2, 4, 8, 16, 32, 64],
        ),
        ({"model_type": "unknown"}, []),
    ],
)
def test_ranks_that_can_share_out_the_heads(config, sizes):
    assert tensor_parallel_sizes(config) == sizes
