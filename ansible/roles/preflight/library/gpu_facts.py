#!/usr/bin/python
"""Ansible module: what a host says about its GPUs and their software. Changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils import nvidia_software as software
from ansible.module_utils import pci_devices as pci
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: gpu_facts
short_description: Look at the GPUs of a host and their software
description:
  - Reads sysfs, procfs, nvidia-smi and dpkg. Needs root for the ACS bits of PCI bridges and changes nothing.
options: {}
author: [SGLang DDTree kit]
"""

EXAMPLES = """
- name: Look at the GPUs
  gpu_facts:
  register: found
"""

RETURN = """
gpu_host:
  description: pci, kernel, driver, smi, processes, toolkit, fabric_manager and secure_boot of the host.
  returned: always
  type: dict
"""


def collect(run: software.Run) -> dict:
    devices = pci.pci_devices()
    gpus = pci.gpus(devices)
    return {
        "pci": {
            "gpus": [gpu["address"] for gpu in gpus],
            "nvswitch": pci.has_nvswitch(devices),
            "nouveau": any(gpu["driver"] == "nouveau" for gpu in gpus),
            "iommu_translated": [gpu["address"] for gpu in gpus if gpu["iommu"].startswith("DMA")],
            "acs_redirect": pci.redirecting_bridges(devices),
        },
        "kernel": {
            "release": os.uname().release,
            "cmdline": Path("/proc/cmdline").read_text(encoding="utf-8").strip(),
            "without_module": software.kernels_without_module(),
        },
        "driver": {**software.loaded_driver(), "library": software.driver_library()},
        "smi": software.smi_gpus(run),
        "processes": software.gpu_processes(run),
        "toolkit": software.package_versions(run, *software.TOOLKIT_PACKAGES),
        "fabric_manager": software.fabric_manager(run),
        "secure_boot": software.secure_boot(run),
    }


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)

    def run(command: list) -> tuple[int, str, str]:
        if module.get_bin_path(command[0]) is None:
            return 127, "", f"{command[0]} is missing"
        return module.run_command(command)

    module.exit_json(changed=False, gpu_host=collect(run))


if __name__ == "__main__":
    main()
