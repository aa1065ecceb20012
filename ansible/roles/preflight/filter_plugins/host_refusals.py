"""Whether a GPU host is what the inventory says and can serve, judged from what the module gpu_facts found."""


def host_refusals(host: dict, generation: str, matrix: dict) -> list[str]:
    """Reasons why no GPU container should start on a host; empty when it may.

    host: result of gpu_facts. generation: the host's group. matrix: ansible/compatibility.yml.
    """
    kind = matrix["generations"][generation]
    if not host["pci"]["gpus"]:
        return [f"there is no NVIDIA GPU on the PCI bus: take the host out of group {generation}"]
    return _module_reasons(host) or [
        *_listing_reasons(host),
        *_generation_reasons(host, generation, kind),
        *_fabric_reasons(host),
        *_toolkit_reasons(host["toolkit"]),
        *_kernel_reasons(host),
    ]


def device_refusals(host: dict, instances: list[dict]) -> list[str]:
    """Reasons why instances cannot have the GPUs that they name on this host; empty when they can."""
    reasons = []
    for instance in instances:
        wanted = [str(gpu) for gpu in instance["gpus"]]
        found = named_gpus(host, wanted)
        missing = [gpu for gpu in wanted if not named_gpus(host, [gpu])]
        if missing:
            there = ", ".join(gpu["uuid"] for gpu in host["smi"]["gpus"])
            reasons.append(f"instance {instance['name']} names GPU {', '.join(missing)}: set gpus to some of {there}")
        kinds = sorted({gpu["compute_cap"] for gpu in found})
        if len(kinds) > 1:
            reasons.append(
                f"instance {instance['name']} spans GPUs of compute capability {' and '.join(kinds)}: set gpus to "
                f"cards of one kind"
            )
        shared = [gpu["uuid"] for gpu in found if gpu["mig.mode.current"] == "Enabled"]
        if shared:
            reasons.append(
                f"instance {instance['name']} names {', '.join(shared)}, which is split by MIG: switch that off or set "
                f"gpus to other cards"
            )
    return reasons


def named_gpus(host: dict, names: list) -> list[dict]:
    """The cards of nvidia-smi that go by these indices or UUIDs."""
    return [gpu for gpu in host["smi"]["gpus"] if {gpu["index"], gpu["uuid"]} & {str(name) for name in names}]


def smallest_gib(host: dict, instance: dict) -> float:
    """Memory in GiB of the smallest GPU of an instance."""
    return min(float(gpu["memory.total"]) for gpu in named_gpus(host, instance["gpus"])) / 1024


def _module_reasons(host: dict) -> list[str]:
    driver = host["driver"]
    if host["pci"]["nouveau"]:
        return ["nouveau holds the GPUs: reboot the host, the role nvidia_driver has put it on the blacklist"]
    if not driver["version"]:
        return ["the NVIDIA kernel module is not loaded: run the role nvidia_driver, then look at dmesg"]
    if driver["version"] != driver["library"]:
        return [
            f"reboot pending: kernel module {driver['version']} runs, library {driver['library'] or 'none'} is "
            f"installed; reboot the host, and keep the driver's packages held"
        ]
    return []


def _listing_reasons(host: dict) -> list[str]:
    on_bus, listed = len(host["pci"]["gpus"]), len(host["smi"]["gpus"])
    if on_bus == listed:
        return []
    why = f" ({host['smi']['error']})" if host["smi"]["error"] else ""
    return [
        f"{on_bus} NVIDIA GPUs are on the PCI bus and nvidia-smi lists {listed}{why}: switch on Above 4G Decoding and "
        f"Resizable BAR in the firmware, then look for NVRM in dmesg"
    ]


def _generation_reasons(host: dict, generation: str, kind: dict) -> list[str]:
    others = [gpu for gpu in host["smi"]["gpus"] if gpu["compute_cap"] != kind["compute_capability"]]
    if not others:
        return []
    seen = ", ".join(sorted({f"{gpu['name']} ({gpu['compute_cap']})" for gpu in others}))
    return [
        f"group {generation} holds compute capability {kind['compute_capability']}, the host has {seen}: move it to "
        f"the group of its GPUs, whose image has kernels for them"
    ]


def _fabric_reasons(host: dict) -> list[str]:
    """Only an NVSwitch needs the fabric manager; without it CUDA fails there with error 802."""
    if not host["pci"]["nvswitch"]:
        return []
    manager, driver = host["fabric_manager"], host["driver"]["version"]
    version = manager["version"].split("-")[0]
    if version != driver:
        return [
            f"fabric manager {version or 'none'} beside driver {driver}: set nvidia_driver_version, run nvidia_driver"
        ]
    if not manager["active"]:
        return ["the fabric manager does not run: look at journalctl -u nvidia-fabricmanager and start it"]
    return []


def _toolkit_reasons(versions: dict) -> list[str]:
    if len(set(versions.values())) < 2:
        return []
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return [f"the container toolkit's packages differ ({listed}): run the role container_toolkit"]


def _kernel_reasons(host: dict) -> list[str]:
    kernels = host["kernel"]["without_module"]
    if not kernels:
        return []
    return [
        f"kernel {', '.join(kernels)} is installed without the NVIDIA module, the next boot may lose the GPUs: install "
        f"its linux-headers and run dkms autoinstall, or remove it"
    ]


class FilterModule:
    def filters(self) -> dict:
        return {"host_refusals": host_refusals, "device_refusals": device_refusals, "smallest_gib": smallest_gib}
