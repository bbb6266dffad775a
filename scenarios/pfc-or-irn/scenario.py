from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import PauseNotSent
from testbed.workload import Attributes, Streams

OUT = "leaf:e5"
"""To the receiver."""
IN = [f"leaf:e{number}" for number in range(1, 5)]
"""From the senders."""
LOSSLESS = 3
"""The priority of DSCP 26."""
MESSAGE, PACKETS = 16 << 10, 16
"""Bytes of a message, and its packets."""
FRAME = 1024 + 16 + 8 + 20 + 14
"""A full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""
ATTRIBUTES = Attributes(timeout=18, retry_cnt=6, traffic_class=26 << 2 | 2)
"""134 ms: longer than any packet waits. DSCP 26, ECN-capable."""


class Settings(Parameters):
    pfc: bool = Field(True, description="whether the switch sends pause frames")
    control: Literal["dcqcn", "none"] = Field("none", description="how the NICs react to congestion marks")
    messages: int = Field(160, ge=1, le=250, description="messages of 16 KB that each of four senders writes")


class PfcOrIrn(Scenario[Settings]):
    """Without PFC, go-back-N makes an incast 2.5 to 4.7 times as long: why a RoCE NIC needs PFC.

    Four senders write to one receiver, with the same buffer, packets and timeout each time. Without pause frames the
    switch drops packets beyond its buffer. Soft-RoCE then resends everything from the lost packet on: three of four
    extra packets were not lost. IRN (Mittal et al., SIGCOMM 2018) found RoCE without PFC 1.5 to 3 times slower than
    with PFC. It shows that a NIC does not need PFC if it has selective repeat and limits the data in flight to the
    bandwidth-delay product. There is no selective repeat here: soft-RoCE has only go-back-N, and no code outside it
    could model selective repeat correctly. So this scenario covers only the go-back-N half of the question.

    With DCQCN the four flows settle without a drop in a lossy class, too, but more slowly than with PFC: first the
    rates have to settle. That holds for a few long flows; a burst of many is over before the first CNP, see the
    scenario pfc-incast.

    On real gear: output discards in the class (`show queue counters`), `out_of_sequence` at the receiver,
    `packet_seq_err` at the senders; their ports send more bytes than the application has. Rates are scaled: 50 Mbit/s
    stand for 40 Gbit/s.

    The fixes: PFC in the class. Or congestion control that settles below the buffer, and a buffer for the bursts. Or,
    beyond this lab, NICs with selective repeat.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("go-back-n", "fault", "no pause frames, no congestion control", {"pfc": False}),
        Variant("dcqcn", "healthy", "no pause frames; the NICs run DCQCN", {"pfc": False, "control": "dcqcn"}),
        Variant("pfc", "healthy", "pause frames, no congestion control"),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        out = run.lab.interface(OUT).lossless
        for end in () if p.pfc else IN:
            run.inject(PauseNotSent(end=end))
        for nic in (*senders, receiver) if p.control == "none" else ():
            nic.control_congestion("none")

        with (
            Streams([(sender, receiver) for sender in senders], ATTRIBUTES, size=MESSAGE) as streams,
            run.step(f"each writes {p.messages * MESSAGE >> 10} KB"),
        ):
            began = run.now
            statuses = [completion.status for completion in streams.write(p.messages)]
            seconds = run.now - began

        needed = len(senders) * p.messages * PACKETS
        slowdown = round(seconds / (needed * FRAME * 8 / (run.lab.interface(OUT).sends.quality.rate or 1)), 2)
        drops, gaps = out.queue(LOSSLESS).dropped_packets, receiver.rdma_counters()["out_of_seq_request"]
        sent = sum(sender.lossless.counters()[f"tx_prio{LOSSLESS}_packets"] for sender in senders)
        pauses = sum(sender.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for sender in senders)
        run.note(slowdown=slowdown, drops=drops, gaps_at_receiver=gaps, pause_frames=pauses)
        run.note(sent_packets=sent, needed_packets=needed, cnps=receiver.lossless.counters()["np_cnp_sent"])
        run.expect("all arrives", statuses, ["SUCCESS"] * 4)
        if slowdown > 1.35:
            run.observe("fault", f"{slowdown} times what the port's rate takes")
            run.expect("the switch drops", drops, lambda packets: packets > 100)
            run.expect("most of what is sent again was not lost", sent - needed, lambda again: again > 2 * drops)
        else:
            run.observe("healthy", f"{slowdown} times what the port's rate takes")
            run.expect("nothing is dropped", drops, 0)
            run.expect("nothing is sent again", (gaps, sent), (0, needed))
        run.expect("pauses come where PFC is on", pauses > 10, p.pfc)
