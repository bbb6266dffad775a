from pathlib import Path
from typing import Literal

from testbed import Field, Host, Parameters, Pod, Run, Scenario, Variant

HERE = Path(__file__).parent
PORT = 8080
SERVER = f"import socket\nserver = socket.create_server(('', {PORT}))\nwhile True: server.accept()"
CLIENT = f"import socket, sys; socket.create_connection((sys.argv[1], {PORT}), 2)"
ACL = """
table netdev acl {
  chain in {
    type filter hook ingress device "e2" priority 0;
    ip saddr 10.0.20.128/26 ip daddr 10.0.20.64/26 counter drop
  }
}
"""
"""On the port of the stranger's node: no packet of tenant b to tenant a."""


class Settings(Parameters):
    nic: Literal["hardware", "rxe"] = Field("hardware", description="how the nodes' NICs do RDMA")
    acl: bool = Field(False, description="whether the switch has an ACL between the tenants")
    vlan: bool = Field(False, description="whether tenant b has a VLAN of its own")


class PolicyPassedByRdma(Scenario[Settings]):
    """A NetworkPolicy keeps a tenant's pods to themselves, and another tenant's RDMA goes through.

    The policy is there and works: a TCP connection of the stranger is dropped, one of the same tenant is not. A check
    of the policy is green. But its rules are netfilter's, in the pod or on the node, and the packets of a queue pair
    never meet them: the NIC makes and takes them. With the address and a queue pair number the stranger connects a
    queue pair and writes.

    With soft-RoCE (`soft-roce`) the kernel makes the packets, UDP to port 4791, and the policy drops them: so a test
    with soft-RoCE does not show it, unless it has NICs that behave as hardware (`nic: hardware`).

    On real gear: `nc -vz` to the pod times out and `ib_write_bw` to it works (with its exchange by rdma_cm or by
    another way). `nft list ruleset` in the pod counts no packet of it, and tcpdump on the node shows none.

    The fixes: in the fabric, which sees all packets, a VLAN or a VRF of its own for each tenant, or an ACL on the
    port of the node. In the NIC: flow rules on the representors of VFs (switchdev mode), which a lab does not have.
    """

    tags = ("cni", "kubernetes", "security")
    variants = (
        Variant("as-is", "fault", "a policy for pods with NICs that do RDMA themselves"),
        Variant("soft-roce", "healthy", "the same with soft-RoCE, which passes netfilter", {"nic": "rxe"}),
        Variant("acl", "healthy", "the switch drops what tenant b sends to tenant a", {"acl": True}),
        Variant("vlan", "healthy", "tenant b is in a VLAN of its own", {"vlan": True}),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "soft-roce.clab.yml" if parameters.nic == "rxe" else self.topology

    def run(self, run: Run, p: Settings) -> None:
        with run.step("pods of two tenants start, with a policy"):
            pods = start(run, p)
            trainer = pods["trainer"]
            server = trainer.spawn("python3", "-c", SERVER)
            server.wait_until("listen", lambda: str(PORT) in trainer.use("ss", "-ltn").stdout, 10)
        address = str(trainer["eth0"].address().ip)
        with run.step("both connect to the trainer by TCP"):
            reached = {name: connects(pods[name], address) for name in ("neighbour", "stranger")}
        run.expect("who connects by TCP", reached, {"neighbour": True, "stranger": False})
        with run.step("both write to the trainer by RDMA"):
            wrote = {name: run.write(pods[name]["eth0"], trainer["eth0"]) for name in reached}
        run.expect("what the neighbour sees", wrote["neighbour"], "SUCCESS")
        run.note(stranger=wrote["stranger"])
        if wrote["stranger"] == "SUCCESS":
            run.observe("fault", "the policy holds for TCP, and the stranger writes by RDMA")
        else:
            run.observe("healthy", f"the stranger does not write: {wrote['stranger']}")
        dropped = p.acl or p.nic == "rxe"
        run.expect(
            "what the stranger sees",
            wrote["stranger"],
            "RETRY_EXC_ERR" if dropped else "ETIMEDOUT" if p.vlan else "SUCCESS",
        )


def start(run: Run, p: Settings) -> dict[str, Pod]:
    if p.acl:
        run.lab.switch("leaf").use("nft", "-f", "-", text=ACL)
    text = (HERE / "cluster.yaml").read_text()
    if p.vlan:
        text = text.replace("default-network: tenant-b}", "default-network: tenant-b-vlan}")
    manifest = run.lab.file("cluster.yaml")
    manifest.write_text(text)
    return {pod.name: pod for pod in run.lab.pods.apply(manifest.absolute()).pods}


def connects(client: Host, address: str) -> bool:
    return client.run("python3", "-c", CLIENT, address, check=False).returncode == 0
