from typing import Any, Literal

from testbed import Field, Parameters, Pod, ProfileName, Run, Scenario, Variant

NODES = ("node1", "node2")
POOL = 12
"""Addresses."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    policy: Literal["lowest-free", "round-robin", "random", "cool-down"] = Field(
        "lowest-free", description="which address of the pool is next"
    )
    cool_down: float = Field(1600.0, ge=0, description="seconds that an address rests, of the policy cool-down")
    restarts: int = Field(16, ge=2, description="times that the pod starts")
    every: float = Field(150.0, gt=0, description="seconds between two starts")


class IpCoolDown(Scenario[Settings]):
    """A pod restarts again and again, and it is reachable or not depending on how soon its address is reused.

    A worker that crashes comes back on the other node, on another VF of host-device, which announces nothing. The IPAM
    has a pool of twelve addresses. With lowest-free, as in Spiderpool and whereabouts, the address is the same each
    time, and the switch sends to the previous MAC: nearly each restart is an outage until the entry ages out.

    round-robin, as in host-local, helps until the pool is used up: twelve addresses, one in 150 s, so each comes back
    after half an hour. That is longer than Cisco's 25 minutes and shorter than Arista's 4 hours. random is in between.
    A cool-down longer than the gateway's ageing has no outage, if the pool has as many addresses as pods start in that
    time; a shorter one does not help.

    On real gear: `show ip arp` has an age from before the pod.

    The fix: a pool with more addresses than pods start during an entry's lifetime, and a policy that uses all of them.

    Outages per 100 starts, scaled from the 16 of a run: one outage is 6 in the table. `--set restarts=100` runs a
    hundred. The cool-down is 1600 s, the ages are 25 min, 30 min and 4 h. The values of random are one draw.

                     cisco-nxos   sonic   arista-eos
        lowest-free          88      88           94
        random               38      44           44
        round-robin           0       0           25
        cool-down             0      31           31

    `testbed matrix ip-cool-down --over policy --over profile=cisco-nxos,sonic,arista-eos` draws it.
    """

    tags = ("arp", "cni", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "the lowest free address: the one that was just given back"),
        Variant("round-robin", "healthy", "all others first: half an hour", {"policy": "round-robin"}),
        Variant(
            "round-robin-4h",
            "fault",
            "the same with Arista's 4 hours",
            {"policy": "round-robin", "profile": "arista-eos"},
        ),
        Variant("random", "fault", "any free address", {"policy": "random"}),
        Variant("cool-down", "healthy", "an address rests for longer than the entry lives", {"policy": "cool-down"}),
        Variant(
            "cool-down-too-short",
            "fault",
            "five minutes: shorter than the entry lives",
            {"policy": "cool-down", "cool_down": 300},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        client = run.lab.host("client")["eth1"]
        given: list[str] = []
        outages = 0
        with run.step(f"a pod starts {p.restarts} times, now on one node and now on the other"):
            for number in range(p.restarts):
                pod = started(run, number, p)
                given.append(str(pod["eth0"].address().ip))
                outages += run.write(client, pod["eth0"]) != "SUCCESS"
                pod.delete()
                run.lab.scheduler.sleep(p.every)
        again = [later - earlier for earlier, later in pairs(given)]
        run.note(outages=f"{outages} of {p.restarts} starts", outages_per_100=round(100 * outages / p.restarts))
        run.note(addresses=len(set(given)), soonest_again_s=round(min(again) * p.every) if again else "never")
        worst = "each start is reached" if not outages else f"{outages} of {p.restarts} starts are not reached"
        run.observe("fault" if outages else "healthy", worst)
        if p.policy == "lowest-free":
            run.expect("the address is the same each time", len(set(given)), 1)


def started(run: Run, number: int, p: Settings) -> Pod:
    """The pod, on a VF with a MAC of its own. It has no reason to speak ARP."""
    node, vf = run.lab.host(NODES[number % 2]), f"eth1v{number}"
    node.add_vf(vf, "eth1")
    pod = run.lab.pods.create(node, f"worker{number}", [network(p, vf)])
    run.silence(pod["eth0"], node["eth1"])
    return pod


def network(p: Settings, vf: str) -> dict[str, Any]:
    """The conflist: a VF with an address of the pool."""
    pool = {"subnet": "10.0.20.0/24", "ips": [f"10.0.20.100-10.0.20.{99 + POOL}"], "gateway": "10.0.20.1"}
    ipam = {"type": "ippool", "pools": [pool], "policy": p.policy, "coolDown": p.cool_down}
    plugins = [{"type": "host-device", "device": vf, "ipam": ipam}, {"type": "rxe"}]
    return {"cniVersion": "1.0.0", "name": "vf", "plugins": plugins}


def pairs(given: list[str]) -> list[tuple[int, int]]:
    """For each start with an address that was there before: the number of the last such start, and its own."""
    found, last = [], dict[str, int]()
    for number, address in enumerate(given):
        if address in last:
            found.append((last[address], number))
        last[address] = number
    return found
