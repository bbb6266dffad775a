import random
from collections import defaultdict
from typing import Literal

from testbed import Field, Parameters, Pod, ProfileName, Run, Scenario, Variant
from testbed.workload import Attributes

RACKS = {"node1": "10.0.20", "node2": "10.0.30"}
"""The first three bytes of the addresses of each node's pods."""
POOL = 8
"""Addresses of a rack."""
LONGEST = 2
"""Intervals for which a job lives, at most."""
TWO_HOURS = 3 * POOL
"""Jobs in which a policy that uses the whole pool gives each address three times."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    policy: Literal["lowest-free", "round-robin", "random", "cool-down"] = Field(
        "lowest-free", description="which address of the pool is next"
    )
    cool_down: float = Field(1600.0, ge=0, description="seconds that an address rests, of the policy cool-down")
    jobs: int = Field(100, ge=2, le=1000, description="jobs that come and go")
    every: float = Field(300.0, gt=0, description="seconds between two of them")


class PodChurn(Scenario[Settings]):
    """Small jobs come and go all day, and most of them fail at their first connect.

    A job has a pod in each of two racks, lives for some minutes and is followed by the next ones: hyperparameter
    searches, evaluations, notebooks. Each pod has a virtual function with its own MAC, announces nothing, and has an
    address of its rack's pool of eight. If another pod had the address recently, the leaf still has that pod's MAC, and
    packets to it are lost. A connect needs both ends, so a job fails if either address was used within the lifetime of
    the switch's entry: more often than a single pod (ip-cool-down).

    Failed first connects of 100 jobs, one working day. The cool-down is 1600 s, the ages are 25 min, 30 min and 4 h.
    The jobs' lives and the values of random are one draw.

                     cisco-nxos   sonic   arista-eos
        lowest-free          63      98           95
        random               47      67           88
        round-robin           0       0           80
        cool-down             0       0           84

    `testbed matrix pod-churn-100-jobs --over policy --over profile=cisco-nxos,sonic,arista-eos` draws it. The variants
    of other policies end after 24 jobs, in which each address of the pool is used three times. Eight addresses at one
    in 300 s come back after 40 minutes: with Arista's 4 hours no policy is enough, only a larger pool.

    On real gear: jobs die in their first collective ("transport retry counter exceeded"), others of the same image on
    the same nodes work; `show ip arp` has addresses with ages from before the job.

    The fixes: a policy that uses the whole pool, and a pool with more addresses than jobs start during an entry's
    lifetime (cool-down, with `coolDown` above the gateway's ageing). Or pods that announce themselves: see ip-reuse.
    """

    tags = ("arp", "cni", "kubernetes", "switch", "training")
    variants = (
        Variant("as-is", "fault", "the lowest free address"),
        Variant("random", "fault", "any free address", {"policy": "random", "jobs": TWO_HOURS}),
        Variant("round-robin", "healthy", "all others first: 40 minutes", {"policy": "round-robin", "jobs": TWO_HOURS}),
        Variant(
            "cool-down",
            "healthy",
            "an address rests for longer than an entry lives",
            {"policy": "cool-down", "jobs": TWO_HOURS},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        ends: dict[int, list[Pod]] = defaultdict(list)
        used: set[str] = set()
        failed, again = 0, 0
        with run.step(f"{p.jobs} jobs, one every {p.every:g} s"):
            for number in range(p.jobs):
                for pod in ends.pop(number, []):
                    pod.delete()
                pods = [started(run, p, node, number) for node in RACKS]
                addresses = {str(pod["eth0"].address().ip) for pod in pods}
                again += bool(addresses & used)
                used |= addresses
                status = run.write(pods[0]["eth0"], pods[1]["eth0"], Attributes(retry_cnt=2))
                failed += status != "SUCCESS"
                ends[number + random.randint(1, LONGEST)] += pods  # noqa: S311
                run.lab.scheduler.sleep(p.every)
        run.note(failed=f"{failed} of {p.jobs} jobs", failed_per_100=round(100 * failed / p.jobs))
        run.note(jobs_with_used_addresses=again, addresses=len(used))
        run.observe("fault" if failed else "healthy", f"{failed} of {p.jobs} jobs fail at their first connect")
        run.expect("who fails has an address that was used", failed, lambda jobs: jobs <= again)
        if p.policy == "lowest-free":
            run.expect("jobs share few addresses", len(used), lambda count: count <= len(RACKS) * (LONGEST + 1))


def started(run: Run, p: Settings, node: str, number: int) -> Pod:
    """A job's pod on a node, on a VF with a MAC of its own. It has no reason to speak ARP."""
    host, vf, net = run.lab.host(node), f"eth1v{number}", RACKS[node]
    host.add_vf(vf, "eth1")
    pool = {"subnet": f"{net}.0/24", "ips": [f"{net}.100-{net}.{99 + POOL}"], "gateway": f"{net}.1"}
    ipam = {"type": "ippool", "pools": [pool], "policy": p.policy, "coolDown": p.cool_down}
    plugins = [{"type": "host-device", "device": vf, "ipam": ipam}, {"type": "rxe"}]
    pod = run.lab.pods.create(host, f"job{number}-{node}", [{"cniVersion": "1.0.0", "name": node, "plugins": plugins}])
    run.silence(pod["eth0"], host["eth1"])
    return pod
