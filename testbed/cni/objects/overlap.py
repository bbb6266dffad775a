"""Checks of a cluster's webhooks: objects that are valid alone, but conflict with others.

Source: Spiderpool 1.0, pkg/ippoolmanager/ippool_validate.go.
"""

from collections.abc import Sequence

from testbed.cni.ipam.pool import Address
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.manifests import Object
from testbed.errors import InputError


def check_pools(there: Sequence[Object], applied: Sequence[Object]) -> None:
    """Refuse a SpiderIPPool of `applied` with an address of another one, except a pool of `there` that it replaces.
    InputError."""
    wanted = {one.name: one for one in applied if one.kind == "SpiderIPPool"}
    kept = [one for one in there if one.name not in wanted]
    owners: dict[Address, Object] = {}
    for one in [*kept, *wanted.values()]:
        _, addresses = IPPool.model_validate(one.spec).made(one.name)
        if first := next((address for address in addresses if address in owners), None):
            hint = "An address belongs to one pool only; to move a range, put both pools in one file."
            raise InputError(f"{one}: {first} is in {owners[first]}, too", hint=hint)
        owners.update(dict.fromkeys(addresses, one))
