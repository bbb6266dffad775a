from pathlib import Path
from typing import Literal, NamedTuple

from testbed import Capture, Field, Host, Parameters, Pod, Run, Scenario, Variant

HERE = Path(__file__).parent
SERVICE, PORT = ("10.96.0.100", 80), 8080
REQUESTS = 50


class Settings(Parameters):
    proxy: Literal["kube-proxy", "ebpf"] = Field("kube-proxy", description="what sends connections to endpoints")
    cluster_cidr: str = Field("10.244.0.0/16", description="kube-proxy's network of pods, whose addresses it keeps")
    hijack: bool = Field(True, description="whether pods have a route to Services by their node")


class Measured(NamedTuple):
    """What a client saw: microseconds a request, MB/s, the address that the server saw."""

    each: float
    rate: float
    seen: str


class ServiceFromUnderlay(Scenario[Settings]):
    """A pod on the fabric connects to a Service's address, and the connection times out.

    A pod with macvlan, ipvlan or a VF sends by the fabric, past its node: kube-proxy's rules, which are the node's, see
    nothing of it. Without more, a packet for a Service's address goes to the fabric's gateway, which knows no such
    network (`no-route`). So the CNI plugin gives the pod a route to the Services by a veth to its node (Spiderpool's
    coordinator, `hijackCIDR`), and the node translates the destination. The endpoint is a pod on the fabric, too, and
    answers the client itself: its answer takes the fabric, past the node that has to translate it back, and the
    client's kernel knows no connection to that peer and resets it. Only if the node also puts its own address in as
    the source (SNAT) does the answer come back to it. kube-proxy does that for senders outside the network of pods
    (`clusterCIDR`): with the usual overlay's it works, if the fabric's subnet is configured as the network of pods it
    does not.

    With BPF at the socket (Cilium's replacement of kube-proxy) the connection goes to the endpoint before the first
    packet is made: request and answer take the fabric, nothing is translated, and the server sees the client's address.

    `testbed run service-from-underlay` measured, on a clock that counts instructions, so that times are what CPUs do:

                               a request         8 MB        the server sees    frames of a request on the wire
        the pod's address      241 us            257 MB/s    the client
        kube-proxy             324 us  + 34 %    250 MB/s    the client's node  10
        BPF at the socket      237 us  -  2 %    270 MB/s    the client         10

    A connection by kube-proxy costs the veth, the node's stack, a draw and two entries of conntrack; the bytes cost
    little more, for they pass the node in segments of 64 KiB (GSO). So of "up to 25 % less delay and 50 % more
    throughput", which users of such replacements have measured, the first is here, and is shape: NAT costs packets, the
    socket costs connections. The second is not: it needs many cores, small packets, or offloads that NAT turns off.

    On real gear: `curl` of a ClusterIP from the pod hangs, `curl` of the endpoint works. `conntrack -L -d CLUSTERIP` on
    the node has SYN_SENT [UNREPLIED]; tcpdump on the endpoint's NIC shows SYN and SYN-ACK, on the client's NIC a
    SYN-ACK from an address that nobody asked, and a RST.

    The fixes: `hijackCIDR` with the Services' network; `clusterCIDR` of the overlay alone, or `masqueradeAll`; a
    replacement of kube-proxy at the socket, which needs neither.
    """

    tags = ("cni", "kubernetes", "services")
    variants = (
        Variant("as-is", "fault", "the fabric is kube-proxy's network of pods", {"cluster_cidr": "10.0.20.0/24"}),
        Variant("no-route", "fault", "pods have no route to Services by their node", {"hijack": False}),
        Variant("kube-proxy", "healthy", "the node's address is in what it translates"),
        Variant(
            "ebpf", "healthy", "BPF at the socket, without a route by the node", {"proxy": "ebpf", "hijack": False}
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        with run.step("a client and a server start on the fabric"):
            client, server = start(run, p)
        with run.step("the client asks the server's own address"):
            direct = ask(run, client, (str(server["eth0"].address().ip), PORT))
        with run.step("the client asks the Service"):
            found = ask(run, client, SERVICE)
        with run.step("it asks once more, and the switch's ports are watched"):
            at_client, at_server = (run.lab.switch("leaf")[port].capture("tcp") for port in ("e1", "e2"))
            ask(run, client, SERVICE, 0)
            for capture in (at_client, at_server):
                capture.stop()
        run.expect("the server's own address works", direct is not None, True)
        counts = [len(list(capture.frames())) for capture in (at_client, at_server)]
        run.note(
            request=path(run, at_server, str(server["eth0"].address().ip), client),
            frames=f"{counts[0]} at the client's node, {counts[1]} at the server's",
        )
        if found is None:
            run.observe("fault", "the connection to the Service times out")
            answers = [frame for frame in at_client.frames() if frame.packet["TCP"].flags == "SA"]
            run.expect("SYN-ACKs that reach the client's node", len(answers) > 0, p.hijack)
            return
        run.observe("healthy", "the Service answers")
        assert direct
        own, node = str(client["eth0"].address().ip), str(run.lab.host("node1")["eth1"].address().ip)
        run.expect("whom the server sees", found.seen, own if p.proxy == "ebpf" else node)
        run.note(
            direct=f"{direct.each:.0f} us a request, {direct.rate:.1f} MB/s",
            service=f"{found.each:.0f} us a request, {found.rate:.1f} MB/s",
        )
        slower = found.each / direct.each
        if p.proxy == "ebpf":
            run.expect("times as long as without a Service", slower, lambda times: times < 1.1)
        else:
            run.expect("times as long as without a Service", slower, lambda times: 1.05 < times < 2.5)


def start(run: Run, p: Settings) -> tuple[Pod, Pod]:
    system = {"apiVersion": "v1", "kind": "ConfigMap"}
    if p.proxy == "ebpf":
        metadata = {"name": "cilium-config", "namespace": "kube-system"}
        run.lab.pods.apply({**system, "metadata": metadata, "data": {"kube-proxy-replacement": "true"}})
    else:
        metadata = {"name": "kube-proxy", "namespace": "kube-system"}
        text = f"mode: nftables\nclusterCIDR: {p.cluster_cidr}\n"
        run.lab.pods.apply({**system, "metadata": metadata, "data": {"config.conf": text}})
    text = (HERE / "cluster.yaml").read_text()
    if not p.hijack:
        text = text.replace("  hijackCIDR: [10.96.0.0/12]\n", "")
    manifest = run.lab.file("cluster.yaml")
    manifest.write_text(text)
    there = {pod.name: pod for pod in run.lab.pods.apply(manifest.absolute()).pods}
    server = there["server"].spawn("python3", str(HERE / "server.py"))
    server.wait_until("listen", lambda: "8080" in there["server"].use("ss", "-ltn").stdout, 10)
    return there["client"], there["server"]


def ask(run: Run, client: Host, to: tuple[str, int], requests: int = REQUESTS) -> Measured | None:
    """Return what the client saw, None if the connection did not come about, or without `requests`."""
    address, port = to
    done = client.run("python3", str(HERE / "client.py"), address, str(port), str(requests), within=120)
    words = done.stdout.split()
    return Measured(float(words[0]), float(words[1]), words[2]) if len(words) == 3 else None


def path(run: Run, at_server: Capture, server: str, client: Pod) -> str:
    """By which addresses requests come to the server's node."""
    own = str(client["eth0"].address().ip)
    nodes = {str(run.lab.host(name)["eth1"].address().ip): name for name in ("node1", "node2")}
    packets = [frame.packet for frame in at_server.frames()]
    senders = {packet["IP"].src for packet in packets if packet["IP"].dst == server}
    shown = ["the client" if one == own else nodes.get(one, one) for one in sorted(senders)]
    return f"from {', '.join(shown)}" if shown else "none"
