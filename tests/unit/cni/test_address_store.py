"""Who has which address: policies, several agents at once, and what a kill leaves."""

import itertools
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from testbed.cni.ipam import address_store as module
from testbed.cni.ipam import pool as pools
from testbed.cni.ipam.address_store import ExhaustedError, Holder, Policy, Store
from testbed.errors import InputError, TestbedError

POD = Holder("rdma", "c1", "eth0", "default", "web", "node1")


def pod(number: int) -> Holder:
    return replace(POD, container=f"c{number}")


def fill(store: Store, name: str = "p", first: int = 1, last: int = 4, net: int = 10) -> None:
    store.put(pools.make(name, f"10.0.{net}.0/24", [f"10.0.{net}.{first}-10.0.{net}.{last}"], (), f"10.0.{net}.254"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        fill(opened)
        yield opened


def take(store: Store, holder: Holder, policy: Policy = "lowest-free", cool_down_s: float = 0) -> int:
    """The last byte of the address."""
    (lease,) = store.allocate(holder, [["p"]], policy, cool_down_s)
    return lease.address.packed[-1]


def test_the_lowest_free_address_comes_back_at_once(store: Store) -> None:
    assert [take(store, pod(n)) for n in (1, 2, 3)] == [1, 2, 3]
    store.give_back(pod(2))
    assert take(store, pod(4)) == 2


def test_round_robin_goes_through_all_before_one_comes_back(store: Store) -> None:
    given = []
    for number in range(6):
        given.append(take(store, pod(number), "round-robin"))
        store.give_back(pod(number))
    assert given == [1, 2, 3, 4, 1, 2]


def test_random_gives_each_once(store: Store) -> None:
    assert sorted(take(store, pod(n), "random") for n in range(4)) == [1, 2, 3, 4]


def test_cool_down_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(10**9, 10**9)
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: next(now))
    assert take(store, pod(1), "cool-down", 60) == 1
    store.give_back(pod(1))
    assert [take(store, pod(n), "cool-down", 60) for n in (2, 3, 4)] == [2, 3, 4]
    with pytest.raises(ExhaustedError, match="no address is free in p; 1 cool down") as said:
        take(store, pod(5), "cool-down", 60)
    assert said.value.cooling == 1
    for _ in range(60):
        next(now)
    assert take(store, pod(5), "cool-down", 60) == 1


def test_the_same_holder_gets_the_same_again(store: Store) -> None:
    assert take(store, POD) == take(store, POD) == 1
    assert store.free("p") == 3


def test_an_address_of_each_family_or_none(store: Store) -> None:
    store.put(pools.make("six", "fd00::/64", ["fd00::1"]))
    leases = store.allocate(pod(1), [["p"], ["six"]], "lowest-free")
    assert [str(lease.address) for lease in leases] == ["10.0.10.1", "fd00::1"]
    with pytest.raises(ExhaustedError, match="no address is free in six"):
        store.allocate(pod(2), [["p"], ["six"]], "lowest-free")
    assert store.held_by(pod(2)) == []


def test_the_next_pool_is_taken_when_one_is_used_up(store: Store) -> None:
    fill(store, "q", net=20)
    given = [store.allocate(pod(n), [["p", "q"]], "lowest-free")[0] for n in range(5)]
    assert [lease.pool for lease in given] == ["p"] * 4 + ["q"]


def test_giving_back_twice_is_nothing(store: Store) -> None:
    take(store, POD)
    assert store.give_back(POD) == [ip_address("10.0.10.1")]
    assert store.give_back(POD) == []


def test_leases_are_listed_by_network_and_node(store: Store) -> None:
    other = replace(POD, network="other", container="c2", node="node2")
    take(store, POD), take(store, other)
    assert [lease.holder for lease in store.leases()] == [POD, other]
    assert [lease.holder for lease in store.leases("other")] == [other]
    assert [lease.holder for lease in store.leases("rdma", "node2")] == []


def test_a_pool_grows_and_shrinks_around_what_is_held(store: Store) -> None:
    assert [take(store, pod(n)) for n in (1, 2, 3)] == [1, 2, 3]
    fill(store, first=3, last=6)
    assert len(store.leases()) == 3
    assert [take(store, pod(n)) for n in (4, 5, 6)] == [4, 5, 6]
    store.give_back(pod(1))
    with pytest.raises(ExhaustedError):
        take(store, pod(7))


def test_an_address_is_in_one_pool(store: Store) -> None:
    with pytest.raises(InputError, match=r"pool q: 10\.0\.10\.4 is in pool p, too"):
        fill(store, "q", first=4, last=9)
    assert store.pool("q") is None


def test_a_range_moves_to_another_pool_with_who_has_it(store: Store) -> None:
    assert [take(store, pod(n)) for n in (1, 2, 3)] == [1, 2, 3]
    q = pools.make("q", "10.0.10.0/24", ["10.0.10.3-10.0.10.9"])
    p = pools.make("p", "10.0.10.0/24", ["10.0.10.1-10.0.10.2"])
    store.put(q, p)
    assert [(lease.pool, lease.address.packed[-1]) for lease in store.leases()] == [("p", 1), ("p", 2), ("q", 3)]
    assert store.give_back(pod(3)) == [ip_address("10.0.10.3")]
    assert (store.free("p"), store.free("q")) == (0, 7)


def test_what_a_pool_lost_twice_is_held_still(store: Store) -> None:
    assert [take(store, pod(n)) for n in (1, 2, 3, 4)] == [1, 2, 3, 4]
    for last in (3, 2, 1):
        fill(store, last=last)
    assert len(store.leases()) == 4
    fill(store, last=3)
    store.give_back(pod(4))
    assert [lease.address.packed[-1] for lease in store.leases()] == [1, 2, 3]
    assert take(store, pod(1)) == 1


def test_pools_are_put_all_or_none(store: Store) -> None:
    with pytest.raises(InputError, match="is in pool p, too"):
        store.put(pools.make("r", "10.1.0.0/24", ["10.1.0.1"]), pools.make("q", "10.0.10.0/24", ["10.0.10.4"]))
    assert store.pool("r") is None
    assert store.free("p") == 4


def test_a_pool_is_read_as_it_was_written(store: Store) -> None:
    made, addresses = pools.make(
        "r", "10.1.0.0/24", ["10.1.0.9"], (), "10.1.0.1", [pools.Route("10.0.0.0/8", "10.1.0.1")]
    )
    store.put((made, addresses))
    assert store.pool("r") == made


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"no database" * 100)
    with pytest.raises(TestbedError, match="store: the cluster's store cannot be used: file is not a database"):
        Store(tmp_path / "store")


# Several at once, and kills


def work(file: Path, first: int, count: int) -> None:
    with Store(file) as store:
        for number in range(first, first + count):
            take(store, pod(number))


def test_agents_side_by_side_give_nothing_twice(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        fill(store, last=120)
        fork = multiprocessing.get_context("fork")
        workers = [fork.Process(target=work, args=(store.file, first, 30)) for first in (0, 100, 200, 300)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        leases = store.leases()
    assert len({lease.address for lease in leases}) == len({lease.holder for lease in leases}) == 120


ACTS = ["take", "take-fixed", "give-back", "keep", "put", "put-objects"]


def kills(act: str, directory: Path, *options: str) -> list[Any]:
    """The output of `kills.py`, a process of its own: each child that is killed would leave a broken file of the
    coverage's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), act, str(directory), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def parts(outcomes: list[Any]) -> list[Any]:
    """Those that are neither that of the first kill nor that of none."""
    return [outcome for outcome in outcomes if outcome not in (outcomes[0], outcomes[-1])]


@pytest.mark.parametrize("act", ACTS)
def test_a_kill_before_any_statement_leaves_all_or_nothing(act: str, tmp_path: Path) -> None:
    outcomes = kills(act, tmp_path)
    assert outcomes[0] != outcomes[-1]
    assert parts(outcomes) == []


@pytest.mark.parametrize("act", [act for act in ACTS if act != "keep"])
def test_of_several_writes_without_a_transaction_a_kill_would_leave_some(act: str, tmp_path: Path) -> None:
    """So the test above fails if one is missing."""
    assert parts(kills(act, tmp_path, "--no-transaction"))


def test_to_keep_addresses_is_one_write(tmp_path: Path) -> None:
    """SQLite carries out one statement whole or not at all, so it has no test without its transaction."""
    (statement,) = kills("keep", tmp_path, "--writes")
    assert "container = ''" in statement


# Against a model


class Model(RuleBasedStateMachine):
    """The store beside a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(Path(":memory:"))
        fill(self.store, last=5)
        self.held: dict[int, int] = {}

    def teardown(self) -> None:
        self.store.close()

    @rule(number=st.integers(0, 7), policy=st.sampled_from(["lowest-free", "round-robin", "random"]))
    def take(self, number: int, policy: Policy) -> None:
        if number not in self.held and len(self.held) == 5:
            with pytest.raises(ExhaustedError):
                take(self.store, pod(number), policy)
            return
        free = sorted(set(range(1, 6)) - set(self.held.values()))
        given = take(self.store, pod(number), policy)
        if number in self.held:
            assert given == self.held[number]
        else:
            assert given in (free[:1] if policy == "lowest-free" else free)
        self.held[number] = given

    @rule(number=st.integers(0, 7))
    def give_back(self, number: int) -> None:
        given = [address.packed[-1] for address in self.store.give_back(pod(number))]
        assert given == [self.held.pop(number)] if number in self.held else not given

    @invariant()
    def nothing_twice(self) -> None:
        leases = {lease.holder.container: lease.address.packed[-1] for lease in self.store.leases()}
        assert leases == {f"c{number}": address for number, address in self.held.items()}
        assert self.store.free("p") == 5 - len(self.held)


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestModel = Model.TestCase


@pytest.mark.parametrize("name", ["HELD_BY", "SAME_POD", "OTHER_UID", "KEEP", "GIVE_BACK", "DROP", "NEXT"])
def test_what_each_pod_asks_does_not_read_all_addresses(name: str, store: Store) -> None:
    statement: str = getattr(module, name)
    values = {"pool": "p", "after": -1, "warm": 0, "skip": 0, "now": 0, "fixed": False} | vars(POD)
    with store.transaction() as database:
        plan = [step for *_, step in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert all("USING" in step and "INDEX" in step for step in plan if "address" in step), plan
    assert not any(step.startswith("SCAN") for step in plan), plan
