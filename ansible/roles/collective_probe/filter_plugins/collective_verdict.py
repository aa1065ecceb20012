"""What the result of a collective probe means for the instance that will use these GPUs."""

# NCCL without direct transfers still hangs in SGLang's own all-reduce, which needs them too: both or neither.
WITHOUT_P2P = {"environment": {"NCCL_P2P_DISABLE": "1"}, "arguments": ["--disable-custom-all-reduce"]}
UNCHANGED = {"environment": {}, "arguments": []}


def collective_verdict(result: dict, pci: dict) -> dict:
    """`verdict` (p2p, no_p2p or broken), `reason` (one sentence), `environment` and `arguments` of the server.

    result: document of collective_probe.py. pci: the section of that name of gpu_facts.
    """
    direct, control = result["arms"]["p2p"], result["arms"]["no_p2p"]
    if direct["outcome"] == "pass":
        return {"verdict": "p2p", "reason": f"direct transfers work at {direct['gb_per_s']} GB/s"} | UNCHANGED
    told = f"all-reduce over {result['ranks']} GPUs: {_told(direct)} with direct transfers, {_told(control)} without"
    if control["outcome"] != "pass":
        return {
            "verdict": "broken",
            "reason": f"{told}: direct transfers are not the cause; look at dmesg for Xid, at shm_gib and at the cards",
        } | UNCHANGED
    if pci["nvswitch"]:
        return {
            "verdict": "broken",
            "reason": f"{told}: this host has an NVSwitch, so its fabric is at fault; look at the fabric manager's log",
        } | UNCHANGED
    return {"verdict": "no_p2p", "reason": f"{told}: {_cause(pci)}"} | WITHOUT_P2P


def _told(arm: dict) -> str:
    return f"{arm['outcome']} ({arm['detail']})" if arm["detail"] else arm["outcome"]


def _cause(pci: dict) -> str:
    causes, cures = [], []
    if pci["iommu_translated"]:
        causes.append("the IOMMU translates addresses")
        cures.append("boot with iommu=pt")
    if pci["acs_redirect"]:
        causes.append(f"ACS redirect is on at {', '.join(pci['acs_redirect'])}")
        cures.append("switch ACS off in the firmware or with setpci")
    if not causes:
        return "neither IOMMU nor ACS is in the way; look at the firmware's PCIe settings and the slots"
    return f"{' and '.join(causes)}; {' and '.join(cures)}, then probe again"


class FilterModule:
    def filters(self) -> dict:
        return {"collective_verdict": collective_verdict}
