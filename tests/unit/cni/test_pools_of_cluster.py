"""The cluster's pools, as they get into the store of addresses."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.ipam.address_store import Holder
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.ipam.known_pools import Catalogue
from testbed.cni.objects import manifests
from testbed.cni.objects.database import Store as Objects
from testbed.cni.objects.kinds import IPPool
from testbed.errors import InputError


def spider(kind: str, name: str, **spec: Any) -> manifests.Object:
    version = "spiderpool.spidernet.io/v2beta1"
    return manifests.make({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})


def pool(name: str, *ips: str) -> manifests.Object:
    return spider("SpiderIPPool", name, subnet="10.0.10.0/24", ips=list(ips))


@dataclass
class Cluster:
    addresses: Addresses
    objects: Objects
    catalogue: Catalogue

    def free(self, *objects: manifests.Object) -> dict[str, int]:
        self.objects.put(objects)
        return {name: self.addresses.free(name) for name in self.catalogue.of_cluster()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Addresses(tmp_path / "addresses") as addresses, Objects(tmp_path / "objects") as objects:
        yield Cluster(addresses, objects, Catalogue(addresses, objects))


def test_a_range_moves_between_pools_in_either_direction(cluster):
    assert cluster.free(pool("a", "10.0.10.1-10.0.10.9"), pool("b", "10.0.10.10")) == {"a": 9, "b": 1}
    assert cluster.free(pool("a", "10.0.10.1"), pool("b", "10.0.10.2-10.0.10.10")) == {"a": 1, "b": 9}
    assert cluster.free(pool("a", "10.0.10.1-10.0.10.9"), pool("b", "10.0.10.10")) == {"a": 9, "b": 1}


def test_a_pool_that_is_deleted_leaves_its_addresses_to_others(cluster):
    cluster.free(pool("a", "10.0.10.1-10.0.10.4"))
    holder = Holder("rdma", "c1", "eth0")
    cluster.addresses.allocate(holder, [["a"]], "lowest-free")
    cluster.objects.delete("SpiderIPPool", "a")
    assert cluster.free() == {}
    assert cluster.free(pool("b", "10.0.10.1-10.0.10.4")) == {"b": 3}
    assert [lease.pool for lease in cluster.addresses.leases()] == ["b"]


def test_a_pool_that_is_deleted_leaves_them_to_what_another_agent_puts(cluster):
    """That of another node, or the one after a crash."""
    cluster.free(pool("a", "10.0.10.1-10.0.10.4"))
    cluster.objects.delete("SpiderIPPool", "a")
    cluster.catalogue = Catalogue(cluster.addresses, cluster.objects)
    assert cluster.free(pool("b", "10.0.10.1-10.0.10.4")) == {"b": 4}


def test_a_reserved_address_is_in_no_pool_until_it_is_not_reserved_any_more(cluster):
    reserved = spider("SpiderReservedIP", "r", ips=["10.0.10.2"])
    assert cluster.free(pool("a", "10.0.10.1-10.0.10.4"), reserved) == {"a": 3}
    cluster.objects.delete("SpiderReservedIP", "r")
    assert cluster.free() == {"a": 4}


def test_a_pool_has_the_range_of_the_last_configuration_whichever_agent_read_it(cluster):
    wide, narrow = (IPPool(subnet="10.0.10.0/24", ips=[ips]) for ips in ("10.0.10.1-10.0.10.9", "10.0.10.3"))
    another = Catalogue(cluster.addresses, cluster.objects)
    for catalogue, pool_, free in (cluster.catalogue, wide, 9), (another, narrow, 1), (cluster.catalogue, wide, 9):
        catalogue.inline("net", [("mine", pool_)])
        assert cluster.addresses.free("mine") == free


def test_a_pool_of_a_configuration_keeps_its_addresses_and_the_clusters_come_when_they_can(cluster):
    cluster.catalogue.inline("net", [("mine", IPPool(subnet="10.0.10.0/24", ips=["10.0.10.4"]))])
    with pytest.raises(InputError, match=r"pool a: 10\.0\.10\.4 is in pool mine, too"):
        cluster.free(pool("a", "10.0.10.1-10.0.10.4"))
    assert cluster.free(pool("a", "10.0.10.1-10.0.10.3")) == {"a": 3}
