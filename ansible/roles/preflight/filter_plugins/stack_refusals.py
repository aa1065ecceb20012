"""Whether driver, CUDA, container toolkit and image go together, pinned in the inventory or found on a host."""


def stack_refusals(stack: dict, generation: str, matrix: dict) -> list[str]:
    """Reasons why a host's software does not go together; empty when it does.

    stack: `driver` and `toolkit` (versions), `open` (whether the open kernel modules are used), `image` with
    `compute_capabilities` (list), `cuda` and `compat_driver` (the driver version of the compatibility libraries on its
    library path, empty for none). generation: the host's group.
    """
    kind = matrix["generations"][generation]
    return [
        *_image_refusals(stack["image"], generation, kind, matrix),
        *_driver_refusals(stack, generation, kind, matrix),
        *toolkit_refusals(stack["toolkit"], matrix),
    ]


def toolkit_refusals(version: str, matrix: dict) -> list[str]:
    """Reasons against one version of the container toolkit."""
    rules = matrix["container_toolkit"]
    fix = f"set container_toolkit_version to {rules['min']} or later, none of {', '.join(rules['denied'])}"
    if version in rules["denied"]:
        return [f"container toolkit {version} {rules['denied'][version]}: {fix}"]
    if numbers(version) < numbers(rules["min"]):
        return [f"container toolkit {version} lets a container take the host (CVE-2024-0132, CVE-2025-23266): {fix}"]
    return []


def _image_refusals(image: dict, generation: str, kind: dict, matrix: dict) -> list[str]:
    reasons = []
    wanted = kind["compute_capability"]
    if wanted not in image["compute_capabilities"]:
        built = ", ".join(image["compute_capabilities"]) or "no GPU"
        reasons.append(
            f"the image is built for compute capability {built}, {generation} ({kind['gpus']}) has {wanted}: set "
            f"sglang_image to an image of this generation"
        )
    if str(image["cuda"]).split(".")[0] not in matrix["cuda"]:
        known = " or ".join(matrix["cuda"])
        reasons.append(f"the image has CUDA {image['cuda']}: set sglang_image to one with CUDA {known}")
    return reasons


def _driver_refusals(stack: dict, generation: str, kind: dict, matrix: dict) -> list[str]:
    driver, image = stack["driver"], stack["image"]
    if kind["open_modules_only"] and not stack["open"]:
        return [f"{kind['gpus']} have no driver but the open kernel modules: set nvidia_driver_open to true"]
    if numbers(driver) < numbers(kind["min_driver"]):
        return [
            f"driver {driver} does not know {generation} ({kind['gpus']}): set nvidia_driver_version to "
            f"{kind['min_driver']} or later"
        ]
    needed = matrix["cuda"].get(str(image["cuda"]).split(".")[0], {}).get("min_driver", "0")
    compat = image["compat_driver"]
    if numbers(driver) < numbers(needed) and not (compat and kind["forward_compatibility"]):
        why = (
            ""
            if kind["forward_compatibility"] or not compat
            else " (its compatibility libraries need data-centre GPUs)"
        )
        return [
            f"driver {driver} is too old for an image with CUDA {image['cuda']}{why}: set nvidia_driver_version to "
            f"{needed} or later"
        ]
    if compat and numbers(driver) > numbers(compat):
        return [
            f"driver {driver} is newer than the compatibility libraries {compat} that the image loads (error "
            f"803): set sglang_image to one without them, or nvidia_driver_version to {compat} or earlier"
        ]
    return []


def numbers(version: str) -> tuple[int, ...]:
    """A dotted version as numbers, a package's suffix (-1, ~rc.2) left out."""
    plain = str(version).replace("~", "-").split("-")[0]
    return tuple(int(part) for part in plain.split(".") if part.isdigit())


class FilterModule:
    def filters(self) -> dict:
        return {"stack_refusals": stack_refusals, "toolkit_refusals": toolkit_refusals}
