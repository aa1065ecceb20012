"""Whether an instance can run over several hosts, judged from the inventory alone."""

# SGLang derives ports from that of the rendezvous, up to this many above it.
DERIVED_PORTS = 8


def node_refusals(
    instances: list[dict], host: str, groups: dict[str, list[str]], fleet: dict[str, list[dict]]
) -> list[str]:
    """Reasons why the instances of `host` that name `nodes` cannot run; empty when they can.

    instances: with their defaults filled in. groups: host -> its GPU generations, fleet: host -> its instances.
    """
    spread = [instance for instance in instances if "nodes" in instance]
    reasons = [_of(instance, reason) for instance in spread for reason in _reasons(instance, host, groups, fleet)]
    return reasons + _port_clashes(instances, spread)


def _of(instance: dict, reason: str) -> str:
    return f"instance {instance['name']}: {reason}"


def _reasons(instance: dict, host: str, groups: dict[str, list[str]], fleet: dict[str, list[dict]]) -> list[str]:
    nodes = instance["nodes"]
    if len(nodes) < 2 or len(set(nodes)) < len(nodes):
        return [f"nodes is {', '.join(nodes) or 'empty'}: name at least two hosts, each once, or leave it out"]
    if unknown := [node for node in nodes if node not in fleet]:
        return [f"nodes has {', '.join(unknown)}, which the inventory does not have: name hosts of {', '.join(fleet)}"]
    if host not in nodes:
        return [f"{host} is not among its nodes ({', '.join(nodes)}): give it to those hosts alone"]
    return [
        *_generations(instance, groups),
        *_differences(instance, host, fleet),
        *_network(instance),
        *_ranks(instance),
        *_algorithm(instance),
    ]


def _generations(instance: dict, groups: dict[str, list[str]]) -> list[str]:
    found = {node: " and ".join(groups[node]) for node in instance["nodes"]}
    if len(set(found.values())) == 1:
        return []
    listed = ", ".join(f"{node} in {group or 'none'}" for node, group in found.items())
    return [f"its nodes are of several generations ({listed}): choose hosts of one group"]


def _differences(instance: dict, host: str, fleet: dict[str, list[dict]]) -> list[str]:
    reasons = []
    for node in instance["nodes"]:
        twin = next((other for other in fleet[node] if other["name"] == instance["name"]), {})
        differ = sorted(key for key in {*instance, *twin} - {"gpus"} if instance.get(key) != twin.get(key))
        if differ:
            reasons.append(f"{node} and {host} say other things about {', '.join(differ)}: define it once, for both")
    return reasons


def _network(instance: dict) -> list[str]:
    reasons = []
    if not instance.get("node_interface"):
        reasons.append("node_interface is missing: set it to the interface by which the nodes reach each other")
    port = int(instance.get("node_port", 0))
    if not 1024 <= port <= 65535 - DERIVED_PORTS:
        reasons.append(f"node_port is {port}: set it to a number from 1024 to {65535 - DERIVED_PORTS}")
    return reasons


def _ranks(instance: dict) -> list[str]:
    tp, pp, nodes, gpus = int(instance["tp"]), int(instance["pp"]), len(instance["nodes"]), len(instance["gpus"])
    if int(instance.get("dp", 1)) > 1 and not instance.get("dp_attention"):
        return [
            f"dp {instance['dp']} without dp_attention makes replicas, which need no nodes: give each its own instance"
        ]
    if tp * pp != nodes * gpus:
        return [
            f"tp {tp} x pp {pp} = {tp * pp} ranks on {nodes} hosts with {gpus} GPUs each: set tp and pp so that their "
            f"product is {nodes * gpus}"
        ]
    # A stage of the pipeline lies on whole hosts, or a host holds whole stages.
    if nodes % pp and pp % nodes:
        return [f"pp {pp} does not divide over {nodes} hosts: set pp to a divisor or a multiple of {nodes}"]
    return []


def _algorithm(instance: dict) -> list[str]:
    if instance["algorithm"] == "ar":
        return []
    return [
        f"algorithm {instance['algorithm']} was not proved over several hosts: set algorithm to ar, or leave nodes out"
    ]


def _port_clashes(instances: list[dict], spread: list[dict]) -> list[str]:
    taken = [(instance["name"], range(int(instance["port"]), int(instance["port"]) + 1)) for instance in instances]
    starts = [(instance["name"], int(instance.get("node_port", 0))) for instance in spread]
    ranges = [(name, range(start, start + DERIVED_PORTS)) for name, start in starts]
    return [
        f"instance {name}: its nodes use ports {own.start} to {own.stop - 1}, and {other} has one of them: set "
        "node_port to the first of others"
        for number, (name, own) in enumerate(ranges)
        for other, theirs in [*taken, *ranges[:number]]
        if own.start < theirs.stop and theirs.start < own.stop
    ]


class FilterModule:
    def filters(self) -> dict:
        return {"node_refusals": node_refusals}
