"""The values of `coordinator` in a SpiderCoordinator and in the plugin's configuration.

Source: Spiderpool 1.0, docs/reference/crd-spidercoordinator.md.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from testbed.cni.objects.kinds import Part, RoutePart, Spec
from testbed.documents.text import describe

COORDINATOR = "SpiderCoordinator"
DEFAULT_ROUTE = "ipam.spidernet.io/default-route-nic"
"""The annotation of a pod with the interface that keeps its default route."""
RuleTable = Annotated[int, Field(ge=1, le=0xFFFFFFFF)]


def _nothing(value: Any) -> Any:
    if value:
        raise ValueError(f"{describe(value)} is not supported: the lab's coordinator does not set it")
    return value


NotSet = Annotated[int | bool | None, AfterValidator(_nothing)]


class CoordinatorSpec(Part, Spec):
    """SpiderCoordinator, and the part `coordinator` of a SpiderMultusConfig. None: use the default."""

    mode: Literal["auto", "underlay", "overlay", "disabled"] | None = None
    """The CRD knows ``disabled``, the plugin ``disable``: it refuses pods with the CRD's word."""
    detectIPConflict: bool | None = None  # noqa: N815 (Spiderpool's names, here and below)
    detectGateway: bool | None = None  # noqa: N815
    podMACPrefix: str | None = None  # noqa: N815
    podRPFilter: int | None = None  # noqa: N815
    tunePodRoutes: bool | None = None  # noqa: N815
    podDefaultRouteNIC: str | None = None  # noqa: N815
    hostRuleTable: RuleTable | None = None  # noqa: N815
    hijackCIDR: list[str] | None = None  # noqa: N815
    policyRoutes: list[RoutePart] | None = None  # noqa: N815
    vethLinkAddress: str | None = None  # noqa: N815
    vethMTU: Annotated[int, Field(ge=1)] | None = None  # noqa: N815
    txQueueLen: int | None = None  # noqa: N815
    podCIDRType: Literal["auto", "cluster", "calico", "cilium", "none"] | None = None  # noqa: N815
    """Accepted and ignored: a lab has no subnets of the cluster."""
    hostRPFilter: NotSet = None  # noqa: N815
    enableVethLinkLocalAddress: NotSet = None  # noqa: N815

    def given(self, *, of_cluster: bool = False) -> dict[str, Any]:
        """Return the keys of the plugin's configuration that are set. Before the cluster's `podDefaultRouteNIC` comes a
        pod's annotation, so that the plugin looks for both."""
        unread = {"podCIDRType", "hostRPFilter", "enableVethLinkLocalAddress"}
        unread |= {"podDefaultRouteNIC"} if of_cluster else set()
        return self.model_dump(mode="json", exclude=unread, exclude_none=True)
