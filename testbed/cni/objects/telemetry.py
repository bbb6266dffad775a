"""Telemetry-aware scheduling: a TASPolicy filters and orders nodes by what is measured there.

Source: Intel's telemetry-aware-scheduling (platform-aware-scheduling), docs/telemetry-aware-scheduling; its strategies
`dontschedule` and `scheduleonmetric`. The third one, `deschedule`, only labels nodes for a descheduler.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from testbed.cni.objects.kinds import LABEL_NAME, Free, Metadata, Part, Spec
from testbed.errors import InputError, did_you_mean

POLICY, LABEL = "TASPolicy", "telemetry-policy"
METRICS = {
    "node_network_transmit_bytes_per_second": "bytes that the node's NICs with RDMA send",
    "node_network_receive_bytes_per_second": "bytes that they receive",
    "leaf_uplink_transmit_bytes_per_second": "bytes of the fullest link from the node's leaf switches up",
    "leaf_uplink_receive_bytes_per_second": "bytes of the fullest link down to them",
}
"""The metrics of nodes. Each is a mean over the last period."""
MOST = 10
"""The score of the best node (MaxExtenderPriority)."""
Metrics = Mapping[str, float]


class Rule(Part):
    metricname: str
    operator: Literal["LessThan", "GreaterThan", "Equals"]
    target: int = 0
    labels: list[str] = Field(default_factory=list)


class Strategy(Part):
    policyName: str = ""  # noqa: N815
    logicalOperator: Literal["anyOf", "allOf"] = "anyOf"  # noqa: N815
    rules: Annotated[list[Rule], Field(min_length=1)]


class Strategies(Part):
    dontschedule: Strategy | None = None
    scheduleonmetric: Strategy | None = None
    deschedule: Strategy | None = None
    labeling: Strategy | None = None


class PolicySpec(Free, Spec):
    strategies: Strategies

    def check(self, metadata: Metadata) -> None:
        for name in ("dontschedule", "scheduleonmetric", "deschedule", "labeling"):
            strategy: Strategy | None = getattr(self.strategies, name)
            for number, rule in enumerate(strategy.rules if strategy else ()):
                if rule.metricname not in METRICS:
                    hint = f"{did_you_mean(rule.metricname, METRICS)}There are: {', '.join(METRICS)}."
                    where = f"spec.strategies.{name}.rules.{number}.metricname"
                    raise InputError(f"a lab measures no {rule.metricname}. {hint}", where=where)


def obstacle(policy: PolicySpec, metrics: Metrics) -> str:
    """Return why a node is left out: a rule that holds. One whose metric is not measured yet does not."""
    strategy = policy.strategies.dontschedule
    if strategy is None:
        return ""
    holding = [rule for rule in strategy.rules if _holds(rule, metrics)]
    enough = len(strategy.rules) if strategy.logicalOperator == "allOf" else 1
    return f"node(s) violate the telemetry policy: {holding[0].metricname}" if len(holding) >= enough else ""


def _holds(rule: Rule, metrics: Metrics) -> bool:
    if rule.metricname not in metrics:
        return False
    value = metrics[rule.metricname]
    match rule.operator:
        case "LessThan":
            return value < rule.target
        case "GreaterThan":
            return value > rule.target
        case _:
            return value == rule.target


def scores(policy: PolicySpec, nodes: Mapping[str, Metrics]) -> dict[str, int]:
    """Return the score of nodes, of those whose metric is known: 10 for the best, then 9, 8, …"""
    strategy = policy.strategies.scheduleonmetric
    if strategy is None:
        return {}
    rule = strategy.rules[0]
    known = {name: metrics[rule.metricname] for name, metrics in nodes.items() if rule.metricname in metrics}
    ordered = sorted(known, key=lambda name: known[name], reverse=rule.operator == "GreaterThan")
    return {name: max(0, MOST - place) for place, name in enumerate(ordered)}


class Level(Part):
    nodeLabel: Annotated[str, Field(pattern=f"^{LABEL_NAME}$", max_length=316)]  # noqa: N815


class TopologySpec(Part, Spec):
    """The levels of a Topology (kueue.x-k8s.io), from the top."""

    levels: Annotated[list[Level], Field(min_length=1, max_length=16)]

    def check(self, metadata: Metadata) -> None:
        labels = [one.nodeLabel for one in self.levels]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise InputError(f'Duplicate value: "{twice[0]}"', where="spec.levels")
        if "kubernetes.io/hostname" in labels[:-1]:
            wrong = "Invalid value: the kubernetes.io/hostname label can only be used at the lowest level of topology"
            raise InputError(wrong, where="spec.levels")
