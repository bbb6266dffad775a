from contextlib import ExitStack
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import EcmpSeedShared
from testbed.workload import Attributes, connect_pair, open_endpoint

PATHS = {"core1": ("spine1", "u1"), "core2": ("spine1", "u2"), "core3": ("spine2", "u1"), "core4": ("spine2", "u2")}
"""The links to the cores: spine and port."""
TOTAL = 1 << 20
"""Bytes that all flows send together."""
FRAME, PAYLOAD = 1024 + 16 + 8 + 20 + 14, 1024
"""A full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""
SAME_AS = {"one": {"spine1": "leaf", "spine2": "leaf"}, "a-tier-each": {"spine2": "spine1"}, "a-switch-each": {}}
"""Which switch has the hash seed of which other one."""


class Settings(Parameters):
    seeds: Literal["one", "a-tier-each", "a-switch-each"] = Field(
        "one", description="the seeds of the ECMP hash: one for all switches, one a tier, one a switch"
    )
    flows: int = Field(32, ge=8, le=64, description="queue pairs that share the bytes, each with a source port")


class EcmpPolarised(Scenario[Settings]):
    """Of four paths two carry all, because leaf and spines choose by one hash.

    A leaf divides its flows between two spines by a hash of addresses and ports, and each spine divides what it gets
    between two cores. If all of them have one hash with one seed, as switches of one vendor have by default, the second
    choice is no choice: spine1 gets the flows with a small hash, and the same hash sends all of them to its first core.
    spine2 gets those with a large one, and its first core is idle. So half of the links carry everything, with any
    number of flows. More queue pairs and other source ports, which help against a collision of a few flows
    (`ecmp-collision`), do not help here.

    On real gear: on every spine one uplink is full and the other idle, on half of the spines the first, on the others
    the last (`show interfaces counters rates`); the hash calculators of leaf and spine give the same number for a
    packet. Rates are scaled: 10 Mbit/s stand for 400 Gbit/s.

    The fixes: a seed for each tier, which is enough, or for each switch (NX-OS `ip load-sharing … universal-id`,
    SONiC's ecmp_hash_seed); an offset of the hash bits that a tier uses (Broadcom's OFFSET_ECMP).

    Sources: sonic-buildimage pull requests 1089 and 3390 set the seed by the switch's type (ToR, leaf, spine); 17215,
    17505 and 18912 set an offset, too, after an SDK no longer did. Issue 25441: more than three tiers need seeds of
    their own.
    """

    tags = ("fabric", "congestion")
    variants = (
        Variant("as-is", "fault", "one seed for all switches: two of four cores are idle"),
        Variant("more-flows", "fault", "the same with twice as many flows", {"flows": 64}),
        Variant("a-tier-each", "healthy", "a seed for the leaf, another one for the spines", {"seeds": "a-tier-each"}),
        Variant("a-switch-each", "healthy", "a seed for each switch", {"seeds": "a-switch-each"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        gpu, storage = run.nics("gpu", "storage")
        for spine, like in SAME_AS[p.seeds].items():
            run.inject(EcmpSeedShared(switch=spine, like=like), may_outlast_run=True)

        with run.step(f"{p.flows} flows"), ExitStack() as ends:
            near = []
            for number in range(1, p.flows + 1):
                end, far = (ends.enter_context(open_endpoint(nic, memory=TOTAL // p.flows)) for nic in (gpu, storage))
                # NCCL's timeout: packets wait for longer in the queue of a full link than the 68 ms of 14.
                connect_pair(end, far, Attributes(timeout=20, flow_label=1000 * number))
                near.append(end)
            run.expect("each connection works", {end.write(1024, within=5).status for end in near}, {"SUCCESS"})
            before, began = sent(run), run.now
            requests = [(end, end.post_write(TOTAL // p.flows)) for end in near]
            ended = {end.wait(request, within=60).status for end, request in requests}
            seconds = run.now - began
            bytes_of = {core: count - before[core] for core, count in sent(run).items()}

        run.expect("all WRITEs arrive", ended, {"SUCCESS"})
        ports = [run.lab.switch(spine)[port] for spine, port in PATHS.values()]
        run.expect("a fabric that drops nothing", sum(port.sends.counters()["dropped"] for port in ports), 0)
        shares = {core: round(100 * count / sum(bytes_of.values())) for core, count in bytes_of.items()}
        rate = sum(port.sends.quality.rate or 1 for port in ports)
        slowdown = round(seconds / (TOTAL / PAYLOAD * FRAME * 8 / rate), 2)
        run.note(slowdown=slowdown, **{f"{core}_percent": share for core, share in shares.items()})
        fullest = max(shares.values()) / 25
        run.expect("as slow as the fullest path (10 %)", slowdown / fullest, lambda part: 0.9 < part < 1.1)
        if slowdown < 1.7:
            run.observe("healthy", f"the job takes {slowdown} times as long as over four equal paths")
            run.expect("every core carries its part", min(shares.values()), lambda share: share >= 12)
            return
        run.observe("fault", f"the job takes {slowdown} times as long as over four equal paths")
        run.expect("spine1 sends all to its first core", (shares["core1"] > 0, shares["core2"]), (True, 0))
        run.expect("spine2 sends all to its last core", (shares["core3"], shares["core4"] > 0), (0, True))


def sent(run: Run) -> dict[str, int]:
    """The bytes that were sent to each core."""
    return {core: run.lab.switch(spine)[port].counters()["tx_bytes"] for core, (spine, port) in PATHS.items()}
