"""What a server on GPUs is started with beside the settings of its algorithm."""

import shlex


def gpu_arguments(instance: dict, verdicts: dict) -> str:
    """Server arguments, quoted as in a shell; the operator's own come last, so that they win.

    verdicts: instance name to what the collective probe found; an instance on a single GPU has none.
    """
    flags = {
        "--attention-backend": instance["attention_backend"],
        "--page-size": instance["page_size"],
        "--tp-size": instance["tp"],
        "--pp-size": instance["pp"],
        "--ep-size": instance["ep"],
        # Left out at 1, so that a release from before data parallelism stays what it was.
        "--dp-size": instance["dp"] if int(instance["dp"]) > 1 else None,
        "--mem-fraction-static": instance["mem_fraction"],
    }
    words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    words += ["--enable-dp-attention"] if instance["dp_attention"] else []
    words += verdicts.get(instance["name"], {}).get("arguments", [])
    return " ".join([shlex.join(words), *filter(None, [instance.get("extra_args")])])


def gpu_environment(instance: dict, verdicts: dict) -> dict[str, str]:
    """Environment of the server, from the same verdicts."""
    return verdicts.get(instance["name"], {}).get("environment", {})


class FilterModule:
    def filters(self) -> dict:
        return {"gpu_arguments": gpu_arguments, "gpu_environment": gpu_environment}
