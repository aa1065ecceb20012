"""A random target of the DeepseekV3 architecture: MLA, routed and shared experts; the drafter of `tiny` fits it.

The latent and rotary dimensions are those for which the Triton backend has tiles of its own (256 + 32), so that a run
on a GPU takes the path that a large model's 512 + 64 takes.
"""

from pathlib import Path

import torch

from tests.engine import tiny
from tests.engine.tiny import HIDDEN, LAYERS, VOCAB, matrix

# Attention is strong and the embeddings share nothing, so that the next token hangs on every token before it.
ATTENTION = 3.0
HEADS, NOPE_DIM, ROPE_DIM, VALUE_DIM, LATENT, QUERY_RANK = 16, 32, 32, 32, 256, 48
EXPERTS, CHOSEN, EXPERT_MLP, DENSE_LAYERS = 8, 3, 32, 1

CONFIG = {
    **tiny.COMMON,
    "vocab_size": tiny.VOCAB,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": ROPE_DIM,
    "qk_nope_head_dim": NOPE_DIM,
    "qk_rope_head_dim": ROPE_DIM,
    "v_head_dim": VALUE_DIM,
    "kv_lora_rank": LATENT,
    "q_lora_rank": QUERY_RANK,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "n_shared_experts": 1,
    "moe_intermediate_size": EXPERT_MLP,
    "first_k_dense_replace": DENSE_LAYERS,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}


def write_mla_pair(folder: Path, seed: int) -> tuple[Path, Path]:
    """Write both models as float32 checkpoints; returns the folders of target and drafter."""
    _, drafter = tiny.write_pair(folder / "llama", seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "model.embed_tokens.weight": torch.randn(VOCAB, HIDDEN, generator=generator),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": matrix(VOCAB, HIDDEN, generator),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        weights |= _attention(f"{name}.self_attn", generator)
        weights |= _mlp(f"{name}.mlp", generator) if layer < DENSE_LAYERS else _experts(f"{name}.mlp", generator)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}.{norm}.weight"] = torch.ones(HIDDEN)
    target = tiny.write_checkpoint(folder / "target", CONFIG, weights)
    tiny.write_tokenizer(target)
    return target, drafter


def _attention(name: str, generator) -> dict[str, torch.Tensor]:
    shapes = {
        "q_a_proj": (QUERY_RANK, HIDDEN),
        "q_b_proj": (HEADS * (NOPE_DIM + ROPE_DIM), QUERY_RANK),
        "kv_a_proj_with_mqa": (LATENT + ROPE_DIM, HIDDEN),
        "kv_b_proj": (HEADS * (NOPE_DIM + VALUE_DIM), LATENT),
        "o_proj": (HIDDEN, HEADS * VALUE_DIM),
    }
    weights = {f"{name}.{part}.weight": matrix(*shape, generator) for part, shape in shapes.items()}
    for strong in ("q_b_proj", "o_proj"):
        weights[f"{name}.{strong}.weight"] *= ATTENTION
    weights[f"{name}.q_a_layernorm.weight"] = torch.ones(QUERY_RANK)
    weights[f"{name}.kv_a_layernorm.weight"] = torch.ones(LATENT)
    return weights


def _experts(name: str, generator) -> dict[str, torch.Tensor]:
    weights = {
        f"{name}.gate.weight": matrix(EXPERTS, HIDDEN, generator),
        f"{name}.gate.e_score_correction_bias": 0.1 * torch.randn(EXPERTS, generator=generator),
        **_mlp(f"{name}.shared_experts", generator, EXPERT_MLP),
    }
    for expert in range(EXPERTS):
        weights |= _mlp(f"{name}.experts.{expert}", generator, EXPERT_MLP)
    return weights


def _mlp(name: str, generator, width: int = tiny.MLP) -> dict[str, torch.Tensor]:
    return {
        f"{name}.gate_proj.weight": matrix(width, HIDDEN, generator),
        f"{name}.up_proj.weight": matrix(width, HIDDEN, generator),
        f"{name}.down_proj.weight": matrix(HIDDEN, width, generator),
    }


@torch.inference_mode()
def greedy_answers(target: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """What the target says, `tokens` tokens long, by another implementation of the architecture than SGLang's."""
    from transformers import DeepseekV3ForCausalLM

    torch.set_num_threads(1)
    model = DeepseekV3ForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    answers = []
    for prompt in prompts:
        ids, past, answer = torch.tensor([prompt]), None, []
        while len(answer) < tokens:
            out = model(ids, past_key_values=past, use_cache=True)
            ids, past = out.logits[:, -1:].argmax(-1), out.past_key_values
            answer.append(int(ids))
        answers.append(answer)
    return answers
