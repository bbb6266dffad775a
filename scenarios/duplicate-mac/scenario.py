from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant

ROUNDS = 2


class Settings(Parameters):
    unique: bool = Field(False, description="whether the clone has a MAC of its own")
    traffic: Literal["client", "each-other"] = Field("client", description="who talks to them: a client, or each other")


class DuplicateMacScenario(Scenario[Settings]):
    """Two hosts have one MAC address, and the switch sends to the last sender.

    A virtual machine was cloned, and its MAC is derived from the machine-id; or an administrator gave one MAC to two
    virtual functions; or a CNI plugin has a MAC in its configuration. The addresses differ, and ARP is right for both.
    A switch has one port for a MAC, the port of the last frame. So each host that sends attracts the other's traffic to
    its own port, where the kernel drops it because of the other address. Each of the two works alone. If both send all
    the time, they lose frames in turns. RDMA goes back to the lost packet each time, so it is slow before it dies. The
    two hosts cannot communicate with each other at all: for the switch, the destination MAC of an answer is on the port
    on which the answer arrives.

    On real gear: the switch logs MAC flapping ("MAC … is flapping between port … and port …"), or a move guard shuts a
    port down. `show mac address-table` has another port each time; `show ip arp` has one MAC for two addresses. One of
    two nodes has RETRY_EXC_ERR, and both are healthy when tested alone.

    The fix: unique MACs. A separate machine-id for each clone, no constant MAC in a conflist.

    soft-RoCE adds another failure: if a queue pair's next hop has the host's own MAC, its packets are looped back
    inside the host, and none is on the wire. That happens only with a static neighbour entry; here ARP fails before.
    """

    tags = ("fdb", "host", "switch")
    variants = (
        Variant("as-is", "fault", "the clone has the server's MAC; who spoke last is reached"),
        Variant("each-other", "fault", "the same; the two try to reach each other", {"traffic": "each-other"}),
        Variant("unique", "healthy", "the clone has a MAC of its own", {"unique": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server, clone = run.nics("client", "server", "clone")
        run.expect_write("the client works with the server", client, server)

        with run.step("the clone comes up"):
            if not p.unique:
                clone.set_mac(server.mac)
            clone.add_rdma("clone-eth1")

        if p.traffic == "each-other":
            self.speak_to_each_other(run, server, clone)
        else:
            self.speak_by_turns(run, client, server, clone)

    def speak_by_turns(self, run: Run, client: HostInterface, server: HostInterface, clone: HostInterface) -> None:
        leaf, spoke, silent = run.lab.switch("leaf"), set(), set()
        wrong = {"e2": clone, "e3": server}  # the ports where nothing for them belongs
        captures = [leaf[port].capture(f"udp port 4791 and dst host {it.address().ip}") for port, it in wrong.items()]
        for speaker, other in [(clone, server), (server, clone)] * ROUNDS:
            with run.step(f"{speaker.node} speaks, and the client connects to both"):
                run.expect(f"{speaker.node}'s gateway answers", speaker.ping_gateway(), True)
                spoke.add(run.write(client, speaker))
                silent.add(run.write(client, other))

        astray = [len(capture.roce()) for capture in captures]
        moves = [event["data"]["port"] for event in run.events("fdb.moved", mac=server.mac)]
        run.note(to_who_spoke_last=", ".join(sorted(spoke)), to_the_other=", ".join(sorted(silent)))
        run.note(moves_of_mac=len(moves), frames_to_wrong_port=sum(astray))
        run.expect("who spoke last is reached", spoke, {"SUCCESS"})
        if clone.mac != server.mac:
            run.observe("healthy", "the client reaches both")
            run.expect("the other one is reached", silent, {"SUCCESS"})
            run.expect("the MAC stayed where it was", moves, [])
            run.expect("frames at the wrong ports", astray, [0, 0])
        else:
            run.observe("fault", "the client reaches the one that spoke last, and never both")
            run.expect("the other one's work requests die of unanswered retries", silent, {"RETRY_EXC_ERR"})
            run.expect("the MAC moved each time another one spoke", moves, ["e3", "e2"] * ROUNDS)
            run.expect("the frames went to the wrong port each time", min(astray), lambda frames: frames >= 4 * ROUNDS)

    def speak_to_each_other(self, run: Run, server: HostInterface, clone: HostInterface) -> None:
        leaf, answers = run.lab.switch("leaf"), f"arp[6:2] = 2 and arp src host {clone.address().ip}"
        captures = [leaf[port].capture(answers) for port in ("e3", "e2")]
        with run.step("the server connects to its clone"):
            status = run.write(server, clone)

        sent, arrived = (len(list(capture.frames())) for capture in captures)
        run.note(outcome=status, arp_answers_of_clone=sent, arrived_at_server=arrived)
        run.observe("healthy" if status == "SUCCESS" else "fault", f"the server's connection to its clone: {status}")
        run.expect("no MAC for the clone", status, "ETIMEDOUT")
        run.expect("the clone answered", sent, lambda frames: frames >= 1)
        run.expect("the switch did not pass that on", arrived, 0)
