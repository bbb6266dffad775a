"""Objects that are derived from others, as the controllers of a cluster make them."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from testbed.cni.ipam.pool import Address
from testbed.cni.objects import autopools, manifests, operators
from testbed.cni.objects.coordinator import COORDINATOR, CoordinatorSpec
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.multus import CR_NAME, RESOURCE_NAME, MultusConfig

OWNER, DEFINITION = "SpiderMultusConfig", "NetworkAttachmentDefinition"
READ = (OWNER, COORDINATOR, DEFINITION, *operators.NETWORKS, autopools.POOL, autopools.SUBNET, *autopools.APPLICATIONS)
"""The kinds that controllers read."""


class Changes(NamedTuple):
    made: list[Object]
    gone: list[Object]
    notes: list[str]
    """Reports of what could not be provided."""


def follow(objects: Mapping[str, Object], held: Collection[Address] = ()) -> Changes:
    """Return the changes after which definitions match SpiderMultusConfigs, and pools match applications. `objects` are
    those of the kinds `READ`, by their names as text; `held` are the addresses that pods have. InputError if
    annotations are wrong."""
    pools = autopools.pools(objects, held)
    wanted = definitions(objects.values()) | pools.wanted
    made = [one for text, one in wanted.items() if text not in objects or objects[text].data != one.data]
    gone = [one for text, one in objects.items() if text not in wanted and (_owner(one) or autopools.is_auto(one))]
    return Changes(made, gone, pools.notes)


def definitions(objects: Iterable[Object]) -> dict[str, Object]:
    """Return the NetworkAttachmentDefinitions of SpiderMultusConfigs, and of the kinds of operators."""
    of_kinds: dict[str, list[Object]] = {OWNER: [], COORDINATOR: [], **{kind: [] for kind in operators.NETWORKS}}
    for one in objects:
        of_kinds.get(one.kind, []).append(one)
    defaults = [CoordinatorSpec.model_validate(one.spec) for one in of_kinds[COORDINATOR]]
    found: dict[str, Object] = {}
    for config in of_kinds[OWNER]:
        one = definition(config, defaults[0] if defaults else None)
        found[str(one)] = one
    for kind in operators.NETWORKS:
        for network in of_kinds[kind]:
            one = of_network(network)
            found[str(one)] = one
    return found


def of_network(network: Object) -> Object:
    """Return the definition that an operator makes of its network."""
    spec = operators.NETWORKS[network.kind].model_validate(network.spec)
    resource = {RESOURCE_NAME: spec.resource()} if spec.resource() else {}
    namespace = spec.networkNamespace or network.namespace or manifests.DEFAULT
    return _defined(network, network.name, namespace, resource, spec.config(network.name))


def _defined(owner: Object, name: str, namespace: str, annotations: Mapping[str, str], config: str) -> Object:
    reference = {"apiVersion": owner.data["apiVersion"], "kind": owner.kind, "name": owner.name, "controller": True}
    return manifests.make(
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": DEFINITION,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": dict(annotations),
                "ownerReferences": [reference],
            },
            "spec": {"config": config} if config else {},
        }
    )


def definition(config: Object, cluster: CoordinatorSpec | None) -> Object:
    spec = MultusConfig.model_validate(config.spec)
    name = config.annotations.get(CR_NAME, config.name)
    annotations = config.annotations
    if spec.sriov:
        annotations[RESOURCE_NAME] = spec.sriov.resourceName
    return _defined(config, name, config.namespace, annotations, spec.config(name, annotations, cluster))


def _owner(one: Object) -> str:
    """Return the object that a definition was made of, or an empty string."""
    owners = one.data["metadata"].get("ownerReferences") or () if one.kind == DEFINITION else ()
    return next((str(owner["name"]) for owner in owners if owner.get("kind") in (OWNER, *operators.NETWORKS)), "")
