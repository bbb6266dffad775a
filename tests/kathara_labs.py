"""Labs of Kathará for tests: the text of lab.conf, other files by their names, and whether Kathará takes it."""

from pathlib import Path

LABS: dict[str, tuple[str, dict[str, str], bool]] = {
    "two-routers": (
        'LAB_NAME="Static routing"\nLAB_DESCRIPTION="two routers"\nLAB_VERSION=1.0\n\n'
        "# a comment\n"
        'r1[0]="A"\nr1[1]="B"\nr1[image]="kathara/frr"\n'
        "r2[0]=B\nr2[1]='C/02:00:00:00:00:0c' # with a MAC\n"
        "pc1[0]=A\npc1[ipv6]=true\npc1[mem]=64m\npc2[0]=C\n",
        {
            "r1.startup": "ip address add 10.0.0.1/24 dev eth0\nfor n in 1 2; do echo ${n}; done\n",
            "r1/etc/frr/frr.conf": "hostname r1\n",
            "pc1.startup": "ip route add default via 10.0.0.1\n",
            "shared.startup": "echo shared\n",
            "shared/list": "shared\n",
            "lab.dep": "# order\npc1: r1 r2\npc2:r2\n",
        },
        True,
    ),
    "lan": (
        "".join(f"h{number}[0]=LAN\n" for number in range(4))
        + 'h0[sysctl]="net.ipv4.tcp_ecn=1"\nh0[env]="WHO=me"\nh0[exec]="sleep 1"\n'
        'h0[exec]="echo two"\nh0[port]="80:80/tcp"\n',
        {},
        True,
    ),
    "alone": ("a[0]=X\nb[image]=kathara/base\n", {}, True),
    "gap": ("a[0]=X\na[2]=Y\n", {}, False),
    "twice": ("a[0]=X\na[0]=Y\n", {}, False),
    "same-domain": ("a[0]=X\na[1]=X\n", {}, False),
    "domain-with-dash": ("a[0]=x-y\n", {}, False),
    "no-mac": ("a[0]=X/\n", {}, False),
    "upper-case": ("R1[0]=X\n", {}, False),
    "reserved": ("shared[0]=X\n", {}, False),
    "unknown-line": ("a[0]=X\nLAB_COLOUR=red\n", {}, False),
    "wrong-sysctl": ('a[sysctl]="vm.x=1"\n', {}, False),
    "wrong-env": ("a[env]=novalue\n", {}, False),
    "empty": ("", {}, False),
    "unknown-dependency": ("a[0]=X\n", {"lab.dep": "a - b\n"}, False),
}


def write(directory: Path, name: str) -> Path:
    conf, files, _ = LABS[name]
    for file, content in {"lab.conf": conf, **files}.items():
        path = directory / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return directory / name
