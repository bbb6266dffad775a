from typing import Literal

from training import JOB_S, first_step, lose_power, parameters, saved_steps, start

from testbed import Field, Parameters, Run, Scenario, Variant, owner_of

STEPS_BEFORE = 6


class Settings(Parameters):
    steps: int = Field(14, ge=10, description="training steps of the whole training")
    every: int = Field(4, ge=1, description="steps from one checkpoint to the next")
    fix: Literal["none", "announce", "clear"] = Field("none", description="what is done for the leaf's ARP entry")


class StandbyTakesAddress(Scenario[Settings]):
    """A node dies in training, a standby takes its address, and the job does not resume: the leaf has the dead MAC.

    n1 loses power. Eight seconds later rank 0 ends with RETRY_EXC_ERR; mpirun waits a quarter of an hour until TCP
    gives up n1's daemon. A standby takes the address of n1 beside its own, so that nothing else has to change, and the
    job restarts from its last checkpoint. The standby has been up for long: it has its gateway's MAC and sends no ARP
    request, and the NIC of an RDMA-only host sends nothing else. The leaf routes to the MAC of the dead node. UCX's
    wire-up gets no answer, and the job dies half a minute after its start, in its first collective.

    On real gear: `show ip arp` on the leaf has the dead node's MAC, minutes or hours old, and `show mac address-table`
    has no port for that. Everything works on the management network, and the standby reaches its gateway from its own
    address.

    The fixes: the program that assigns the address to the standby announces it (`arping -U`, keepalived), or clears the
    address on the leaf. The job then resumes at its last checkpoint, and its final parameters are those of an
    uninterrupted job, to the bit. The steps since that checkpoint are lost.
    """

    tags = ("training", "arp", "recovery")
    training = True
    variants = (
        Variant("as-is", "fault", "the standby is silent"),
        Variant("announced", "healthy", "the standby announces its address", {"fix": "announce"}),
        Variant("cleared", "healthy", "the address is cleared on the leaf", {"fix": "clear"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        n0, n1, standby = (run.lab.host(name) for name in ("n0", "n1", "standby"))
        leaf, address = run.lab.switch("leaf1"), n1["eth1"].address()
        checkpoints = run.lab.file("checkpoints")
        checkpoints.mkdir()
        with run.step("the standby is up, under an address of its own"):
            run.expect("it reaches its gateway", standby["eth1"].ping_gateway(), True)

        with run.step("n1 dies in training"):
            job = start(run, [n0, n1], "job", p.steps, checkpoints, p.every)
            lose_power(run, job, n1, after=STEPS_BEFORE)
            done, saved = job.steps_done(), saved_steps(checkpoints)
            run.expect("there is a checkpoint", saved, done // p.every * p.every)
            run.note(steps_done=done, steps_lost=done - saved)
        run.expect("the leaf has n1's MAC", leaf.neighbour(address.ip), n1["eth1"].mac)

        with run.step("the standby takes the address of n1"):
            standby["eth1"].add_address(address)
            if p.fix == "announce":
                standby["eth1"].announce()
            elif p.fix == "clear":
                leaf.clear_arp(ip=address.ip)

        with run.step("the job resumes"):
            resumed = start(run, [n0, standby], "resumed", p.steps, checkpoints, p.every)
            failure = resumed.wait(JOB_S)
        known = owner_of(leaf.neighbour(address.ip), n1["eth1"], standby["eth1"])
        run.note(switch_arp=known)
        if failure:
            run.observe("fault", f"the job does not resume: {failure}")
            run.expect("UCX could not connect", failure.text, lambda text: "timeout" in text)
            run.expect("no rank did a step", resumed.steps_done(), 0)
            run.expect("the leaf still has the MAC of", known, "n1's MAC")
            return
        run.observe("healthy", "the job resumes and trains to the end")
        run.expect("the leaf has the MAC of", known, "standby's MAC")
        run.expect("it resumed at the checkpoint", first_step(resumed), saved)
        with run.step("the same training without an interruption"):
            whole = start(run, [n0, standby], "uninterrupted", p.steps)
            whole.check(JOB_S)
        run.expect("that one began at 0", first_step(whole), 0)
        same = [parameters(resumed, rank).tobytes() == parameters(whole, rank).tobytes() for rank in "01"]
        run.note(parameters="equal to the bit" if all(same) else "different")
        run.expect("the parameters of both ranks are the same to the bit", same, [True, True])
