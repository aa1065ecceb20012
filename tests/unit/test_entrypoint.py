"""The entry point starts the server that the image was built for."""

from pathlib import Path

import pytest

from tests.unit.loading import load_file

PATH = Path(__file__).parents[2] / "docker" / "entrypoint.py"
VALIDATED = {"block_size": 8, "budget": 15, "top_k": 8, "dtype": "float32"}
VALIDATED |= {"context_length": 4096, "max_running_requests": 4, "max_total_tokens": 8192}


@pytest.fixture(scope="module")
def entrypoint():
    return load_file(PATH)


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


@pytest.mark.parametrize("generation", ["sm90", "sm100", "sm103", "sm120"])
def test_a_gpu_image_serves_on_its_gpu_with_graphs(entrypoint, generation):
    command, variables = entrypoint.launch({"DDTREE_GENERATION": generation}, VALIDATED, Path("/models/pair"))
    assert value(command, "--device") == "cuda" and value(command, "--attention-backend") == "triton"
    assert "--disable-cuda-graph" not in command
    assert variables == {"SGLANG_DDTREE_BUDGET": "15", "SGLANG_DDTREE_TOPK": "8"}


@pytest.mark.parametrize("environment", [{}, {"DDTREE_GENERATION": ""}, {"DDTREE_GENERATION": "cpu"}])
def test_a_cpu_image_serves_on_the_cpu(entrypoint, environment):
    command, _ = entrypoint.launch(environment, VALIDATED, Path("/models/pair"))
    assert value(command, "--device") == "cpu" and value(command, "--attention-backend") == "torch_native"


def test_what_an_instance_asks_for_wins_over_the_device_s_own(entrypoint):
    environment = {"DDTREE_GENERATION": "sm90", "EXTRA_ARGS": "--attention-backend fa3 --mem-fraction-static 0.5"}
    command, _ = entrypoint.launch(environment, VALIDATED, Path("/models/pair"))
    assert command[-4:] == ["--attention-backend", "fa3", "--mem-fraction-static", "0.5"]
