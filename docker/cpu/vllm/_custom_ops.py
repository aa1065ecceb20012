"""SGLang's rotary embedding stores this function as a fallback and then takes its torch path on a CPU."""


def rotary_embedding(*args, **kwargs):
    raise RuntimeError("vllm._custom_ops.rotary_embedding was called: this is only its name, vLLM is not installed")
