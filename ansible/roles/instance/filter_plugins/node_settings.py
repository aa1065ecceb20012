"""What a server is started with when its ranks lie on several hosts."""


def node_arguments(instance: dict, host: str, addresses: dict[str, str]) -> list[str]:
    """Server arguments of one node; addresses: host -> its address for the other nodes."""
    if "nodes" not in instance:
        return []
    nodes = instance["nodes"]
    rendezvous = f"{addresses[nodes[0]]}:{instance['node_port']}"
    flags = {"--nnodes": len(nodes), "--node-rank": nodes.index(host), "--dist-init-addr": rendezvous}
    return [word for flag, value in flags.items() for word in (flag, str(value))]


def node_environment(instance: dict, host: str) -> dict[str, str]:
    """Environment of one node's container, which has the host's network: the ranks open ports as they like.

    HTTP stays on loopback. A node without the first rank answers health checks alone, as HEALTH says.
    """
    if "nodes" not in instance:
        return {}
    interface = instance["node_interface"]
    network = {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface}
    http = {"HOST": "127.0.0.1", "PORT": str(instance["port"])}
    return network | http | ({} if is_first(instance, host) else {"HEALTH": "listening"})


def is_first(instance: dict, host: str) -> bool:
    """Whether this host serves the instance's clients."""
    return instance.get("nodes", [host])[0] == host


def node_firewall(instance: dict, host: str, addresses: dict[str, str]) -> list[str]:
    """Rules for an input chain of nftables: the other nodes may reach every port, nobody else those of the rendezvous.

    Gloo and NCCL take free ports of their own, so that no list of ports would do.
    """
    if "nodes" not in instance:
        return []
    others = ", ".join(addresses[node] for node in instance["nodes"] if node != host)
    interface, first = instance["node_interface"], int(instance["node_port"])
    return [
        f'iifname "{interface}" ip saddr {{ {others} }} meta l4proto tcp accept',
        f'iifname != "lo" tcp dport {first}-{first + 7} drop',
    ]


class FilterModule:
    def filters(self) -> dict:
        return {"node_arguments": node_arguments, "node_environment": node_environment, "node_firewall": node_firewall}
