"""The inventory, the roles and the Compose file name the same things."""

import configparser
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "ansible" / "roles"


def load(path: Path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def instance_environment() -> dict[str, str]:
    return load(ROLES / "instance" / "vars" / "main.yml")["_instance_environment"]


def test_every_group_has_defaults():
    inventory = configparser.ConfigParser(allow_no_value=True, delimiters=("\0",))
    inventory.read(ROOT / "inventory.ini")
    files = {path.stem for path in (ROOT / "ansible" / "group_vars").glob("*.yml")}
    beside = {"monitoring", "router"}
    assert set(inventory.sections()) - beside == files - {"all"} == {"cpu", "sm90", "sm100", "sm103", "sm120"}


def test_the_image_looked_for_is_the_image_run():
    image = load(ROOT / "docker" / "compose.yaml")["services"]["sglang"]["image"]
    assert image.startswith(load(ROOT / "ansible" / "group_vars" / "cpu.yml")["sglang_image"] + "-${SGLANG_VERSION")


def test_the_instance_role_sets_only_what_compose_reads():
    read = set(re.findall(r"\$\{(\w+)", (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")))
    assert set(instance_environment()) - {"COMPOSE_PROJECT_NAME"} <= read


def test_nothing_but_the_inventory_sets_the_server():
    service = load(ROOT / "docker" / "compose.yaml")["services"]["sglang"]
    settings = re.findall(r"\$\{(\w+)", str([service["environment"], service["ports"], service["image"]]))
    assert "DDTREE_BUDGET" in settings
    assert set(settings) <= set(instance_environment())


def test_every_key_of_an_instance_has_an_effect():
    specs = load(ROLES / "preflight" / "meta" / "argument_specs.yml")["argument_specs"]
    keys = set(specs["instances"]["options"]["sglang_resolved"]["options"])
    rendered = "".join(path.read_text(encoding="utf-8") for path in (ROLES / "instance").rglob("*.yml"))
    plugins = [
        *(ROLES / "instance" / "filter_plugins").glob("*.py"),
        *(ROOT / "ansible" / "filter_plugins").glob("*.py"),
    ]
    arguments = "".join(path.read_text(encoding="utf-8") for path in plugins)
    used = set(re.findall(r"sglang_instance\.(\w+)", rendered))
    used |= set(re.findall(r"""instance(?:\.get\(|\[)"(\w+)""", arguments))
    assert keys == used
