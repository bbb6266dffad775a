from typing import Literal

from testbed import Field, Host, Parameters, Process, Run, Scenario, Variant
from testbed.workload import Traffic

NAME = "master.train.svc.cluster.local"
PORT = "29500"
WRITES, SIZE = 200, 4096
RESTART_S, PATIENCE_S = 10.0, 60.0
SOON_S = 10.0
DNSMASQ = "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--log-facility=-"


class Settings(Parameters):
    trouble: Literal["moved", "early"] = Field(
        "moved", description="the master moves to another node, or the worker asks before the DNS has its name"
    )
    ttl: int = Field(30, ge=0, le=3600, description="seconds for which a cache keeps the master's address")
    patient: bool = Field(False, description="whether the worker asks again, for a minute")


class DnsStaleMaster(Scenario[Settings]):
    """A job's master moves, and its worker's node has the old address in its DNS cache: another job's master has it.

    A worker finds its master by name, and exchanges queue pairs with it over TCP. Each node has a cache before the
    cluster's DNS, as NodeLocal DNSCache, and keeps answers for their time to live. The master is deleted and comes up
    on n2; the node n1 starts a master of another job on the same port, 29500. The worker starts again after ten
    seconds. Its cache still has n1, so it connects there. Nothing says which job is meant: it gets a queue pair and a
    key of memory, and all of its WRITEs go into the other job's memory, without an error. Its own master waits.

    A cache keeps names that do not exist, too. A worker that is faster than its master asks too early, and hears for
    half a minute that there is no such name, although the DNS has it by then.

    On real gear: `nslookup` in the pod and `kubectl get endpoints` disagree; `rdma statistic` of a NIC grows whose job
    is not that worker's, and a master waits for a worker that is up. NCCL's bootstrap and torchrun's c10d store have an
    id of the job (--rdzv-id, NCCL's magic) that refuses such a peer.

    The fixes: a time to live below the time of a restart, as CoreDNS' 5 s; an id of the job in the rendezvous; a worker
    that asks again for longer than a cache keeps that there is no name.
    """

    tags = ("start", "kubernetes", "name")
    variants = (
        Variant("as-is", "fault", "the cache keeps addresses for 30 s"),
        Variant("short-ttl", "healthy", "the cache keeps addresses for 5 s", {"ttl": 5}),
        Variant("too-early", "fault", "the worker asks before the name is there", {"trouble": "early"}),
        Variant("asks-again", "healthy", "and asks again for a minute", {"trouble": "early", "patient": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        worker, n1, n2 = (run.lab.host(name) for name in ("worker", "n1", "n2"))
        cluster = serve(run, p, n1 if p.trouble == "moved" else None)
        cache(run, worker)
        own, other = master(n2), None
        if p.trouble == "moved":
            with run.step("a worker finds its master on n1"):
                first = master(n1)
                run.expect("it meets it", meet(worker), "")
                run.expect("the master ends with it", first.wait(SOON_S), 0)
            with run.step("the master moves to n2, and n1 has one of another job"):
                cluster.stop()
                other = master(n1)
                serve(run, p, n2)
        else:
            with run.step("a worker asks for its master before its name is there"):
                run.expect("it finds none", "Name or service not known" in meet(worker), True)
                cluster.stop()
                serve(run, p, n2)
        with run.step("the worker starts again"):
            run.lab.scheduler.sleep(RESTART_S)
            arrived = {host.name: Traffic(host["eth1"]) for host in (n1, n2)}
            began = run.now
            error = meet(worker)
            while error and p.patient and run.now - began < PATIENCE_S:
                run.lab.scheduler.sleep(1)
                error = meet(worker)
        packets = {name: traffic.packets()["roce_in"] for name, traffic in arrived.items()}
        truth = worker.run("dig", "+short", f"@{run.lab.host('dns')['mgmt0'].address().ip}", NAME).stdout.strip()
        run.note(error=error or "none", roce_packets_at=packets, dns_says=truth, waited_s=round(run.now - began, 1))
        run.expect("the cluster's DNS has the master's address", truth, str(n2["mgmt0"].address().ip))
        if error:
            run.observe("fault", f"the worker does not find its master, though the DNS has its name: {error}")
            run.expect("no RoCE packet was sent", packets, {"n1": 0, "n2": 0})
        elif packets["n1"]:
            run.observe("fault", "the worker's WRITEs go into the memory of another job")
            assert other is not None
            run.expect("the other job's master took it for its own worker", other.wait(SOON_S), 0)
            run.expect("its own master still waits", own.running, True)
        else:
            run.observe("healthy", "the worker finds its master on n2")
            run.expect("the WRITEs came there", packets["n2"], lambda count: count >= WRITES)


def serve(run: Run, p: Settings, master: Host | None) -> Process:
    """Start the cluster's DNS, with the master's name if there is a master."""
    record = [f"--host-record={NAME},{master['mgmt0'].address().ip},{p.ttl}"] if master else []
    server = run.lab.host("dns").launch(*DNSMASQ, "--user=root", "--local=/cluster.local/", *record)
    server.wait_output("started", within=SOON_S)
    return server


def cache(run: Run, worker: Host) -> None:
    """Start the DNS cache of a node, and let its programs ask it."""
    upstream = f"--server={run.lab.host('dns')['mgmt0'].address().ip}"
    started = worker.launch(*DNSMASQ, "--user=root", "--listen-address=127.0.0.1", "--neg-ttl=30", upstream)
    started.wait_output("started", within=SOON_S)
    resolver = run.lab.file("resolv.conf")
    resolver.write_text("nameserver 127.0.0.1\n")
    worker.bind(resolver.absolute(), "/etc/resolv.conf")


def master(host: Host) -> Process:
    """Start a job's master: it waits for a worker, with memory that this may write to."""
    process = host.launch("ib_write_bw", *options(host), "-p", PORT)
    process.wait_until("listen", lambda: f":{PORT} " in host.run("ss", "-ltn").stdout, SOON_S)
    return process


def meet(worker: Host) -> str:
    """The worker exchanges queue pairs with its master, by name, and writes to it; its error, or nothing."""
    done = worker.run("ib_write_bw", *options(worker), "-p", PORT, NAME, within=PATIENCE_S, check=False)
    return "" if done.returncode == 0 else (done.stderr + done.stdout).strip().splitlines()[0]


def options(host: Host) -> list[str]:
    return ["-d", host["eth1"].device, "-x", "1", "-n", str(WRITES), "-s", str(SIZE), "-F"]
