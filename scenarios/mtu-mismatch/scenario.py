"""See the docstring of MtuMismatch, or `testbed describe mtu-mismatch`."""

from __future__ import annotations

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import LinkMtu
from testbed.workload.attributes import Attributes

SMALL, LARGE = 256, 64 << 10


class Settings(Parameters):
    port_mtu: int = Field(1000, ge=576, le=1500, description="MTU of the server's switch port; the NICs' is 1500")
    path_mtu: int = Field(1024, description="payload of a RoCE packet in bytes: 256, 512, 1024")


class MtuMismatch(Scenario):
    """
    A switch port takes smaller packets than the NICs send: small messages pass, large ones die.

    One port was left at its default when the fabric went to jumbo frames, or a tunnel took some bytes. Connections come
    up, handshakes and small messages work, and the first full packet vanishes. RoCE has no path MTU discovery: packets
    have DF set, a NIC ignores what ICMP says, and a switch that bridges says nothing at all. (Soft-RoCE does not ignore
    it: behind a router it ends with WR_FLUSH_ERR at once. So here the switch bridges.)

    On real gear: the port counts giants or MTU drops (`show interface counters errors`); `ping -M do -s` finds the
    size. The job hangs in its first large collective and ends with RETRY_EXC_ERR.

    The cures: one MTU on all ports of the path, larger than the NICs'; meanwhile, a smaller path MTU of the queue pair
    (NCCL and UCX take it from the NIC's MTU).
    """

    title = "Small messages pass, large ones die"
    tags = ("link", "mtu")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the port takes 1000 bytes, a full packet has 1084"),
        Variant("port-mtu", "healthy", "the port takes what the NICs send", {"port_mtu": 1500}),
        Variant("path-mtu", "healthy", "the queue pair sends 512 bytes a packet", {"path_mtu": 512}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.lab.host("client"), run.lab.host("server")
        attributes = Attributes(path_mtu=p.path_mtu)
        if p.port_mtu < run.lab["leaf"].mtu("e2"):
            run.inject(LinkMtu(end="leaf:e2", mtu=p.port_mtu))

        with run.step("a small message"):
            small = run.write(client, server, attributes, size=SMALL)
            run.expect("the small message", small, "SUCCESS")

        with run.step("a large message"):
            captured = run.lab["leaf"].capture("e1", f"udp port 4791 and greater {p.path_mtu}")
            before = run.lab["leaf"].statistics("e2")["tx_bytes"]
            large = run.write(client, server, attributes, size=LARGE)
            passed = run.lab["leaf"].statistics("e2")["tx_bytes"] - before
            captured.stop()

        full = sum(frame.roce for frame in captured.frames())
        run.note(small=small, large=large, full_packets_to_switch=full, bytes_to_server=passed)
        run.expect("the switch gets full packets", full, lambda packets: packets >= LARGE // p.path_mtu)
        if large == "SUCCESS":
            run.observe("healthy", "small and large messages arrive")
        else:
            run.observe("fault", f"the large message dies of {large}")
            run.expect("it dies of unanswered retries", large, "RETRY_EXC_ERR")
            run.expect("none of them leaves for the server", passed, lambda bytes_: bytes_ < p.path_mtu)
