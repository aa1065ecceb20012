"""The converted target is the model it should be: it answers, and it stops."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CACHE_DIR") or ROOT / ".cache") / "models" / "smollm2-135m" / "target"


@pytest.fixture(scope="module")
def transformers():
    torch = pytest.importorskip("torch", reason="the target runs on torch")
    library = None
    try:
        import torchvision  # noqa: F401  (transformers imports it when it is installed)
    except ImportError:
        pass
    except RuntimeError:
        # A torchvision built for CUDA beside a CPU build of torch: declaring its two operators is enough.
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield pytest.importorskip("transformers", reason="the target runs on plain transformers")
    del library  # the declarations live as long as this object


def test_the_target_answers_and_stops(transformers):
    assert TARGET.is_dir(), f"{TARGET} is missing; run: python -m models fetch smollm2-135m"
    tokenizer = transformers.AutoTokenizer.from_pretrained(TARGET)
    model = transformers.AutoModelForCausalLM.from_pretrained(TARGET)
    assert str(model.dtype) == "torch.float32"

    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, do_sample=False, max_new_tokens=40)
    answer = output[0][prompt["input_ids"].shape[1] :].tolist()

    assert answer[-1] == tokenizer.eos_token_id == 2
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."
