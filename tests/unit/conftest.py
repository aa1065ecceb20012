"""What several unit tests need."""

import json

import pytest


@pytest.fixture
def folders(tmp_path):
    """A pair that fits, with weights of no content."""
    shared = {"hidden_size": 8, "vocab_size": 10}
    target = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}
    drafter = {"architectures": ["DFlashDraftModel"], "num_target_layers": 4, "block_size": 8}
    for role, config in (("target", target), ("drafter", drafter)):
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text(json.dumps(shared | config))
        header = b"{}      "
        (tmp_path / role / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return ["--target", str(tmp_path / "target"), "--drafter", str(tmp_path / "drafter")]
