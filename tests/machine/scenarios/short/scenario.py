"""What ip-reuse shows, without pods: a run with steps that takes little time."""

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="profile of the leaf")


class Short(Scenario[Settings]):
    """An address goes from one host to another, which announces it."""

    variants = (Variant("announced", "healthy", "b announces the address"),)

    def run(self, run: Run, p: Settings) -> None:
        client, a, b = (run.lab.host(name)["eth1"] for name in ("client", "a", "b"))
        run.lab.switch("leaf")["e3"].capture("udp port 4791 or arp")
        with run.step("the client writes to a"):
            run.expect("it reaches a", run.write(client, a), "SUCCESS")
        with run.step("a ends"):
            address = a.remove_address()
            run.sleep(1, "the address rests")
        with run.step("b gets the address"):
            b.add_address(address)
            b.announce(ip=address.ip)
        with run.step("the client writes to b"):
            run.observe_status(run.write(client, b), "the client reaches b")
