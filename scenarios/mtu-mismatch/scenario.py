from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkMtu
from testbed.workload import Attributes

SMALL, LARGE = 256, 64 << 10


class Settings(Parameters):
    port_mtu: int = Field(1000, ge=576, le=1500, description="MTU of the server's switch port; the NICs' is 1500")
    path_mtu: int = Field(1024, description="payload of a RoCE packet in bytes: 256, 512, 1024")


class MtuMismatch(Scenario[Settings]):
    """A switch port has too small an MTU: small messages pass, large ones die.

    One port kept its default when the fabric changed to jumbo frames, or a tunnel uses some bytes. Connections come up,
    small messages work, and the first full packet vanishes. RoCE has no path MTU discovery: packets have DF set, a NIC
    ignores ICMP, and a switch that bridges sends none. (Soft-RoCE does not ignore it: behind a router it ends with
    WR_FLUSH_ERR at once. So here the switch bridges.)

    On real gear: the port counts giants or MTU drops (`show interface counters errors`); `ping -M do -s` finds the
    size. The job hangs in its first large collective and ends with RETRY_EXC_ERR.

    The fix: one MTU on all ports of the path, larger than the NICs'. Until then a smaller path MTU of the queue pair
    (NCCL and UCX take it from the NIC's MTU).
    """

    tags = ("link", "mtu")
    variants = (
        Variant("as-is", "fault", "the port takes 1000 bytes, a full packet has 1084"),
        Variant("port-mtu", "healthy", "the port takes what the NICs send", {"port_mtu": 1500}),
        Variant("path-mtu", "healthy", "the queue pair sends 512 bytes a packet", {"path_mtu": 512}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.nics("client", "server")
        to_client, to_server = run.lab.interface("leaf:e1"), run.lab.interface("leaf:e2")
        attributes = Attributes(path_mtu=p.path_mtu)
        if p.port_mtu < to_server.mtu:
            run.inject(LinkMtu(end="leaf:e2", mtu=p.port_mtu))

        with run.step("a small message"):
            small = run.write(client, server, attributes, size=SMALL)
            run.expect("the small message", small, "SUCCESS")

        with run.step("a large message"):
            captured = to_client.capture(f"udp port 4791 and greater {p.path_mtu}")
            before = to_server.counters()["tx_bytes"]
            large = run.write(client, server, attributes, size=LARGE)
            passed = to_server.counters()["tx_bytes"] - before

        full = len(captured.roce())
        run.note(small=small, large=large, full_packets_to_switch=full, bytes_to_server=passed)
        run.expect("the switch gets full packets", full, lambda packets: packets >= LARGE // p.path_mtu)
        if not run.observe_status(large, "small and large messages arrive", who="the client's large message"):
            run.expect("none of them leaves for the server", passed, lambda bytes_: bytes_ < p.path_mtu)
