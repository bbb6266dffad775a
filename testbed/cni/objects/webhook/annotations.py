"""Annotations of pods, of the templates of workloads, of namespaces and of networks.

Sources: Spiderpool v1.0.0, pkg/constant/k8s.go, pkg/ipam/utils.go and pool_selections.go, docs/reference/annotation.md;
Multus' docs/configuration.md. A cluster ignores an annotation that nobody reads. Here it is an error, for nothing else
would tell of a mistake in its name.
"""

from collections.abc import Callable, Mapping

from testbed.cni.ipam import candidates
from testbed.cni.objects import subnet
from testbed.cni.objects.coordinator import DEFAULT_ROUTE
from testbed.cni.objects.multus import CNI_VERSION, CR_NAME, INJECT, INJECT_RDMA, RESOURCE_NAME
from testbed.cni.objects.webhook.review import Denied, Review, Rule
from testbed.cni.spec import selection
from testbed.documents.text import Path
from testbed.errors import InputError, did_you_mean

PREFIXES = (
    "ipam.spidernet.io/",
    "cni.spidernet.io/",
    "multus.spidernet.io/",
    "k8s.v1.cni.cncf.io/",
    "v1.multus-cni.io/",
)
"""Those of the projects whose annotations count."""
STATUS = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
"""Multus writes them."""
OF_SUBNETS = (subnet.ONE, subnet.SEVERAL, subnet.NUMBER, subnet.RECLAIM)
OF_PODS = (
    candidates.ONE,
    candidates.SEVERAL,
    candidates.ROUTES,
    DEFAULT_ROUTE,
    *OF_SUBNETS,
    INJECT_RDMA,
    INJECT,
    selection.NETWORKS,
    selection.DEFAULT_NETWORK,
    *STATUS,
)
OF_NAMESPACES = (*candidates.DEFAULTS.values(), INJECT_RDMA, INJECT)
OF_CONFIGS = (CR_NAME, CNI_VERSION, INJECT_RDMA, INJECT)
OF_DEFINITIONS = (RESOURCE_NAME, *OF_CONFIGS)
METADATA: Path = ("metadata", "annotations")


def check_names(path: Path, annotations: Mapping[str, str], known: tuple[str, ...], carrier: str) -> None:
    """Refuse an annotation of the projects that none of them reads on such an object. Denied."""
    for key in annotations:
        if key.startswith(PREFIXES) and key not in known:
            near = did_you_mean(key, known, aside=True)
            raise Denied((*path, key), f"Unknown annotation: nothing reads it on a {carrier}{near}")


def check_pod(path: Path, annotations: Mapping[str, str], carrier: str = "pod") -> None:
    """Refuse wrong annotations of a pod, or of a template of pods. Denied."""
    check_names(path, annotations, OF_PODS, carrier)
    readers: dict[str, Callable[[], object]] = {
        candidates.SEVERAL: lambda: candidates.pools_of_interfaces(annotations[candidates.SEVERAL]),
        candidates.ONE: lambda: candidates.pools_of_one(annotations[candidates.ONE]),
        candidates.ROUTES: lambda: candidates.routes_of(annotations[candidates.ROUTES]),
        (subnet.SEVERAL if subnet.SEVERAL in annotations else subnet.ONE): lambda: subnet.settings(annotations),
        selection.NETWORKS: lambda: selection.selected(annotations, ""),
        selection.DEFAULT_NETWORK: lambda: selection.default(annotations),
    }
    for key, read in readers.items():
        if key in annotations:
            try:
                read()
            except InputError as error:
                raise Denied((*path, key), f"{error.where}: {error.message}", complete=True) from None


def annotations_of_pods(review: Review) -> None:
    check_pod(METADATA, review.new.annotations)


def annotations_of_templates(review: Review) -> None:
    template = review.new.spec.get("template") or {}
    found = (template.get("metadata") or {}).get("annotations") or {}
    check_pod(("spec", "template", *METADATA), found, f"template of a {review.new.kind}")
    check_names(METADATA, review.new.annotations, (), f"{review.new.kind}, only on its template")


def annotations_of_namespaces(review: Review) -> None:
    """GetNSDefaultPools of pkg/namespacemanager."""
    check_names(METADATA, review.new.annotations, OF_NAMESPACES, "Namespace")
    try:
        candidates.pools_of_namespace(review.new.annotations)
    except InputError as error:
        raise Denied(METADATA, f"{error.where}: {error.message}", complete=True) from None


def annotations_of(known: tuple[str, ...]) -> Rule:
    return lambda review: check_names(METADATA, review.new.annotations, known, review.new.kind)
