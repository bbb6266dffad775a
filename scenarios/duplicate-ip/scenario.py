from testbed import Field, HostInterface, IPAddress, Parameters, ProfileName, Run, Scenario, Variant, owner_of
from testbed.faults import DuplicateIp


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    detect: bool = Field(False, description="whether the second host asks first if its address is taken (RFC 5227)")


class DuplicateIpScenario(Scenario[Settings]):
    """Two hosts have one IP address, and the switch accepts the last announcement.

    A node comes up with the address of another one: a template with a static address, a lease that was given twice. The
    node announces itself, and the switch's ARP entry moves to it. Every connection of that address breaks: packets
    arrive at a host with the address but without the queue pair, and soft-RoCE drops them silently.

    On real gear: the switch logs a duplicate address ("duplicate IP address … sent from", "moved from … to"). The
    entry's MAC changes back and forth while both hosts send. Clients get RETRY_EXC_ERR, while ping works always or
    sometimes, because both owners answer it.

    The fixes: hosts probe an address before they use it (address conflict detection, RFC 5227). Or the switch accepts
    no unconfirmed change of MAC (Huawei's entry-check fixed-mac, DHCP snooping with dynamic ARP inspection); then
    legitimate moves of the address fail too.
    """

    tags = ("arp", "host", "switch")
    variants = (
        Variant("as-is", "fault", "the second host announces itself, the switch's entry moves to it"),
        Variant("detected", "healthy", "it asks first whether the address is taken", {"detect": True}),
        Variant("fixed-mac", "healthy", "the switch keeps the MAC it knows", {"profile": "huawei-ce-fixed-mac"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server, intruder) = run.lab.switch("leaf"), run.nics("client", "server", "intruder")
        ip = server.address().ip
        captured = leaf["e3"].capture("udp port 4791")

        run.expect_write("the client works with the server", client, server)
        run.expect("the switch has the server's MAC", leaf.neighbour(ip), server.mac)

        with run.step("a second host gets the server's address"):
            taken = p.detect and is_taken(intruder, ip)
            if not taken:
                run.inject(DuplicateIp(host="intruder", ip=ip))
                intruder.announce(ip=ip)

        with run.step("the client connects anew"):
            status = run.write(client, server)

        astray = len(captured.roce(to=intruder.mac))
        known = owner_of(leaf.neighbour(ip), server, intruder)
        run.note(completion=status, switch_arp=known, frames_to_intruder=astray)
        if p.detect:
            run.expect("the address was found to be taken", taken, True)
        reached = run.observe_status(status, "the client reaches the server")
        run.expect("the switch has the MAC of", known, "server's MAC" if reached else "intruder's MAC")
        if not reached:
            run.expect("its frames went to the intruder", astray, lambda frames: frames >= 4)


def is_taken(interface: HostInterface, ip: IPAddress) -> bool:
    """Whether somebody answers an ARP probe for the address: arping ends with 1 then, with 0 if nobody does."""
    return interface.node.run("arping", "-D", "-c", "2", "-I", interface.name, str(ip), check=False).returncode == 1
