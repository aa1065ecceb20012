"""Bad input is answered with one clear line, before anything is loaded."""

import http.server
import os
import shutil
import subprocess

from tests.image.conftest import IMAGE, ROOT, VERSION, docker, refused


def replace(path, data: bytes) -> None:
    """Write a file anew: the old one may be a hard link."""
    path.unlink()
    path.write_bytes(data)


def test_a_budget_of_zero(models):
    line = refused("--env", "DDTREE_BUDGET=0", "--volume", f"{models}:/models:ro", IMAGE)
    assert "DDTREE_BUDGET=0" in line


def test_a_half_copied_model_file(models):
    path = models / "smollm2-135m" / "target" / "model.safetensors"
    with path.open("rb") as file:
        start = file.read(1 << 20)
    replace(path, start)
    line = refused("--volume", f"{models}:/models:ro", IMAGE)
    assert "model.safetensors" in line and "fetch-model" in line


def test_a_changed_byte_in_the_drafter(models):
    path = models / "smollm2-135m" / "drafter" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    replace(path, bytes(data))
    assert "drafter/model.safetensors" in refused("--volume", f"{models}:/models:ro", IMAGE)


def test_a_missing_drafter(models):
    shutil.rmtree(models / "smollm2-135m" / "drafter")
    assert "drafter" in refused("--volume", f"{models}:/models:ro", IMAGE)


def test_a_drafter_of_another_target(models):
    pair = models / "smollm2-135m"
    config = (pair / "drafter" / "config.json").read_text()
    replace(pair / "drafter" / "config.json", config.replace('"hidden_size": 576', '"hidden_size": 640').encode())
    code, said = docker(
        "run", "--rm", "--volume", f"{models}:/models:ro", IMAGE,
        "python3", "-m", "models", "check", "/models/smollm2-135m/target", "/models/smollm2-135m/drafter",
    )  # fmt: skip
    assert code == 1 and "hidden_size" in said


def test_a_build_with_one_patch_dropped_fails_and_names_it(tmp_path):
    context = tmp_path / "context"
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, files):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, context / name)
    shutil.copytree(ROOT / "docker" / "wheels", context / "docker" / "wheels", dirs_exist_ok=True)
    series = context / "patches" / VERSION / "series"
    first, *rest = series.read_text().split()
    series.write_text("\n".join(rest) + "\n")
    (series.parent / first).unlink()
    base = docker("image", "inspect", "--format", '{{index .Config.Labels "ddtree.base"}}', IMAGE)[1].strip()
    code, said = docker(
        "build", "--file", str(context / "docker" / "Dockerfile"), "--target", "engine",
        "--build-arg", f"BASE_IMAGE={base}", "--build-arg", f"SGLANG_VERSION={VERSION}", str(context),
        seconds=1200,
    )  # fmt: skip
    assert code != 0 and f"{first} is missing from the series" in said, said[-2000:]


def test_an_image_built_around_the_check_refuses_to_start(tmp_path, models):
    site = "/opt/venv/lib/python3.11/site-packages/sglang/srt/mem_cache/allocation_sizing.py"
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nUSER root\nRUN echo '# edited' >> {site}\nUSER 10001\n")
    code, said = docker("build", "--tag", "ddtree-test:edited", str(tmp_path))
    assert code == 0, said
    try:
        line = refused("--volume", f"{models}:/models:ro", "ddtree-test:edited")
    finally:
        docker("image", "rm", "ddtree-test:edited")
    assert "DDTREE refuses to start" in line and "allocation_sizing.py was changed" in line


def test_an_algorithm_that_no_plugin_registers(models):
    line = refused("--volume", f"{models}:/models:ro", "--env", "SGLANG_PLUGINS=none", IMAGE)
    assert "DDTREE" in line


def demo(**settings: str) -> subprocess.CompletedProcess:
    """The demo, ended by what these settings make it refuse."""
    script, environment = str(ROOT / "scripts" / "demo.sh"), {**os.environ, **settings}
    return subprocess.run([script], capture_output=True, text=True, env=environment)


def test_a_taken_port(tmp_path):
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        port = str(server.server_address[1])
        run = demo(PORT=port)
    assert run.returncode == 1 and f"port {port} is taken" in run.stderr


def test_a_running_demo_does_not_take_its_own_port():
    run = demo(SGLANG_VERSION="0.0.0")
    assert run.returncode != 0 and "is taken" not in run.stderr
    assert "no lock for SGLang 0.0.0" in run.stderr


def test_no_docker_engine_for_this_user(tmp_path):
    # The checkout may lie where only root can go.
    script = shutil.copy(ROOT / "scripts" / "docker-engine.sh", tmp_path)
    for path in [tmp_path, *tmp_path.parents][:4]:
        path.chmod(0o755)
    run = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", script],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"},
    )
    assert run.returncode == 1 and "docker-engine: " in run.stderr and "run: sudo" in run.stderr
