"""SpiderMultusConfig. Sources: pkg/multuscniconfig/multusconfig_validate.go, utils.go."""

import json
import re
from collections.abc import Sequence

from testbed.cni.objects.kinds import NAME
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.multus import CNI_VERSION, CR_NAME, INJECT, INJECT_RDMA, MultusConfig, OnNic, Sriov
from testbed.cni.objects.webhook.coordinator import check_spec
from testbed.cni.objects.webhook.review import Denied, Review, Rule, forbidden, invalid, required
from testbed.cni.spec import conflist
from testbed.documents.text import Path
from testbed.errors import InputError

SPEC: Path = ("spec",)
ANNOTATIONS: Path = ("metadata", "annotations")
CNI_VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0")
PARTS = {"macvlan": "macvlan", "ipvlan": "ipvlan", "sriov": "sriov", "custom": "customCNI"}
"""The key of each cniType."""


def _spec(review: Review) -> MultusConfig:
    return MultusConfig.model_validate(review.new.spec)


def definition_name(config: Object) -> str:
    return config.annotations.get(CR_NAME, config.name)


def the_definitions_name_stays(review: Review) -> None:
    """validateCustomAnnoNameShouldNotBeChangeable."""
    if not review.old:
        return
    before, now = (one.annotations.get(CR_NAME) for one in (review.old, review.new))
    if now and before and now != before:
        wrong = f"it's unsupported to change customized Multus net-attach-def resource name from '{before}' to '{now}'"
        invalid((*ANNOTATIONS, CR_NAME), before, wrong)
    if now and not before:
        wrong = f"it's unsupported to changed Multus net-attach-def '{review.new.name}' to customized name '{now}'"
        invalid((*ANNOTATIONS, CR_NAME), now, wrong)


def the_definition_is_its_own(review: Review) -> None:
    """validateAnnotation."""
    name, namespace = definition_name(review.new), review.new.namespace
    if not re.fullmatch(NAME, name):
        invalid((*ANNOTATIONS, CR_NAME), name, "invalid custom net-attach-def resource name")
    for other in review.of_kind("SpiderMultusConfig"):
        if (other.namespace, definition_name(other)) == (namespace, name):
            wrong = f"the net-attach-def {namespace}/{name} already exists and is managed by SpiderMultusConfig"
            invalid(ANNOTATIONS, dict(review.new.annotations), f"{wrong} {namespace}/{other.name}.")


def the_version_is_one_of_the_plugins(review: Review) -> None:
    """validateAnnotation: SupportCNIVersions."""
    version = review.new.annotations.get(CNI_VERSION)
    if version is not None and version not in CNI_VERSIONS:
        invalid((*ANNOTATIONS, CNI_VERSION), version, f"unsupported CNI version {version}")


def there_is_the_part_of_its_type(review: Review) -> None:
    """validateCNIConfig, checkExistedConfig. `customCNI` may be missing."""
    spec = _spec(review)
    own = PARTS[spec.cniType]
    if getattr(spec, own) is None and spec.cniType != "custom":
        required((*SPEC, own), f"no spec.{own} specified")
    if others := [
        part for part in (*PARTS.values(), "ibsriov", "ipoib", "ovs") if part != own and getattr(spec, part) is not None
    ]:
        wrong = (
            f"the cniType {spec.cniType} only supports spec.{own}, please remove other CNI configs: spec.{others[0]}"
        )
        forbidden((*SPEC, "cniType"), wrong)


def several_masters_are_a_bond(review: Review) -> None:
    """validateVlanCNIConfig."""
    spec = _spec(review)
    if isinstance(nic := spec.network, OnNic):
        path = (*SPEC, spec.cniType, "master")
        if not nic.master:
            invalid(path, nic.master, "master can't be empty")
        if len(nic.master) > 1 and not nic.bond:
            invalid(path, nic.master, "the bond property is nil with multiple Interfaces")
        if len(nic.master) > 1 and nic.bond and not nic.bond.name:
            invalid((*SPEC, spec.cniType, "bond", "name"), "", "bond name can't be empty")
        if nic.ippools and nic.ippools.matchMasterSubnet:  # since 1.1
            wrong = f"MatchMasterSubnet feature is not supported for {spec.cniType}"
            invalid((*SPEC, spec.cniType, "ippools", "matchMasterSubnet"), True, wrong)


def a_vf_has_a_resource_and_rates_in_order(review: Review) -> None:
    """validateCNIConfig."""
    vf = _spec(review).sriov
    if not vf:
        return
    if vf.minTxRateMbps > vf.maxTxRateMbps:
        wrong = "minTxRateMbps must be less than maxTxRateMbps"
        invalid((*SPEC, "sriov", "minTxRateMbps"), vf.minTxRateMbps, wrong)
    if not vf.resourceName:
        required((*SPEC, "sriov", "resourceName"), "no sriovConfig[resourceName] specified")


def what_is_injected_has_pools(review: Review) -> None:
    """ValidateRdmaResouce, ValidateNetworkResouce."""
    spec, name = _spec(review), f"{review.new.namespace}/{review.new.name}"
    rdma, network = (key in review.new.annotations for key in (INJECT_RDMA, INJECT))
    if not (rdma or network):
        return
    if not spec.network:
        wrong = f"the cniType {spec.cniType} does not support RDMA resource or network resource injected"
        forbidden((*SPEC, "cniType"), wrong)
    assert spec.network
    path = (*SPEC, spec.cniType)
    if rdma and not spec.network.resource:
        key = "resourceName" if isinstance(spec.network, Sriov) else "rdmaResourceName"
        invalid((*path, key), "", f"rdmaResourceName can not empty for spidermultusconfig {name}")
    if (rdma or spec.network.resource) and not (spec.pools.ipv4 or spec.pools.ipv6):
        invalid((*path, "ippools"), None, f"No any ippools configured for spidermultusconfig {name}")


def a_configuration_of_the_users_is_json(review: Review) -> None:
    """validateCNIConfig."""
    text = _spec(review).customCNI
    if text:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            forbidden((*SPEC, "customCNI"), "customCniConfig isn't a valid JSON encoding")


def chained_plugins_have_a_type(review: Review) -> None:
    """libcni.ConfFromBytes."""
    for number, text in enumerate(_spec(review).chainCNIJsonData):
        path = (*SPEC, "chainCNIJsonData", number)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            forbidden(path, f"invalid {text}: error parsing configuration: {error}")
        if not isinstance(value, dict) or not value.get("type"):
            forbidden(path, f"invalid {text}: error parsing configuration: missing 'type'")


def its_coordinator_is_right(review: Review) -> None:
    """ValidateCoordinatorSpec."""
    if found := _spec(review).coordinator:
        check_spec((*SPEC, "coordinator"), found, of_cluster=False)


def it_becomes_a_definition(review: Review) -> None:
    """Not Spiderpool's: whether a runtime can read what its controller makes of it."""
    spec = _spec(review)
    try:
        if text := spec.config(review.new.name, review.new.annotations):
            conflist.definition(text, review.new.name, "its configuration" if spec.network else "spec.customCNI")
    except InputError as error:
        raise Denied(SPEC, f"{error.where}: {error.message}", complete=True) from None


OF_CONFIGS: Sequence[Rule] = (
    the_definitions_name_stays,
    the_definition_is_its_own,
    the_version_is_one_of_the_plugins,
    there_is_the_part_of_its_type,
    several_masters_are_a_bond,
    a_vf_has_a_resource_and_rates_in_order,
    what_is_injected_has_pools,
    a_configuration_of_the_users_is_json,
    chained_plugins_have_a_type,
    its_coordinator_is_right,
    it_becomes_a_definition,
)
