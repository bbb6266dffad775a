"""The rules of each kind, in the order in which the webhooks apply them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network

from testbed.cni.objects.autopools import APPLICATIONS, POOL, SUBNET, is_auto
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.subnet import SubnetSpec
from testbed.cni.objects.webhook import annotations, coordinator, networks, pools
from testbed.cni.objects.webhook.review import Denied, Review, Rule
from testbed.documents.problems import Problems

RULES: Mapping[str, Sequence[Rule]] = {
    POOL: (*pools.OF_POOLS, annotations.annotations_of(())),
    SUBNET: (*pools.OF_SUBNETS, annotations.annotations_of(())),
    "SpiderReservedIP": (*pools.OF_RESERVED, annotations.annotations_of(())),
    "SpiderCoordinator": (*coordinator.OF_COORDINATORS, annotations.annotations_of(())),
    "SpiderMultusConfig": (*networks.OF_CONFIGS, annotations.annotations_of(annotations.OF_CONFIGS)),
    "NetworkAttachmentDefinition": (annotations.annotations_of(annotations.OF_DEFINITIONS),),
    "Namespace": (annotations.annotations_of_namespaces,),
    "Pod": (annotations.annotations_of_pods,),
    **dict.fromkeys(APPLICATIONS, (annotations.annotations_of_templates,)),
}


def admitted(review: Review) -> Object:
    """Return the object as the mutating webhooks change it. InputError, with its place in a file, if one is wrong."""
    try:
        for rule in RULES.get(review.new.kind, ()):
            rule(review)
    except Denied as error:
        problems = Problems(review.new.document, str(review.new))
        problems.add(error.path, str(error))
        problems.stop()
    return _changed(review)


def _changed(review: Review) -> Object:
    new = review.new
    if new.kind == "SpiderCoordinator" and (hijacked := new.spec.get("hijackCIDR")):  # pkg/coordinatormanager
        spec = {**new.spec, "hijackCIDR": [str(ip_network(text, strict=False)) for text in hijacked]}
        return replace(new, data={**new.data, "spec": spec})
    if new.kind == POOL and not is_auto(new):
        for owner in review.of_kind(SUBNET):
            if owner.spec["subnet"] == new.spec["subnet"]:
                spec = pools.inheriting(dict(new.spec), SubnetSpec.model_validate(owner.spec))
                return replace(new, data={**new.data, "spec": spec})
    return new
