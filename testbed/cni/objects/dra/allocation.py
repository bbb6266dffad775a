"""The devices of claims: the choice of kube-scheduler.

Source: Kubernetes 1.34, staging/src/k8s.io/dynamic-resource-allocation/structured. It takes claims, requests and
devices in their order and the first combination that satisfies all selectors and constraints.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from testbed.cni.objects.dra.kinds import MOST, ClaimSpec, ClassSpec, Constraint, DeviceSelector, Exact
from testbed.cni.objects.dra.selectors import Device, matches
from testbed.errors import InputError

MOST_STEPS = 100_000
"""Attempts to give a device. Requests whose search takes longer are refused; kube-scheduler has 10 s for a pod."""


class Given(NamedTuple):
    """A device, and the request of a claim that it was given for."""

    request: str
    device: Device


class Asking(NamedTuple):
    """A claim without devices."""

    name: str
    spec: ClaimSpec


def allocate(
    claims: Sequence[Asking], classes: Mapping[str, ClassSpec], devices: Sequence[Device], taken: Collection[str]
) -> list[list[Given]] | None:
    """Return the devices of each claim, of those that a node has and that are not in `taken` (as text); None if they do
    not suffice. InputError if a selector cannot be evaluated or a class does not exist, as kube-scheduler says it."""
    return _Search(claims, classes, devices, set(taken)).run()


class _Search:
    def __init__(
        self, claims: Sequence[Asking], classes: Mapping[str, ClassSpec], devices: Sequence[Device], taken: set[str]
    ) -> None:
        self._claims, self._classes, self._devices, self._taken = claims, classes, devices, taken
        self._found: list[list[Given]] = [[] for _ in claims]
        self._selected: dict[tuple[int, str, str], bool] = {}
        self._steps = 0
        for claim in claims:
            for request in claim.spec.devices.requests:
                for name, option in request.options():
                    if option.deviceClassName not in classes:
                        missing = f'deviceclass.resource.k8s.io "{option.deviceClassName}" not found'
                        where = f"claim {claim.name}, request {name}: could not retrieve device class"
                        raise InputError(f"{where} {option.deviceClassName}: {missing}")

    def run(self) -> list[list[Given]] | None:
        return self._found if self._claim(0) else None

    def _claim(self, number: int) -> bool:
        return number == len(self._claims) or self._request(number, 0)

    def _request(self, claim: int, number: int) -> bool:
        requests = self._claims[claim].spec.devices.requests
        if number == len(requests):
            return self._claim(claim + 1)
        for name, option in requests[number].options():
            if option.allocationMode == "All":
                wanted = [one for one in self._devices if self._is_selected(claim, name, option, one)]
                if wanted and self._all(claim, number, name, wanted):
                    return True
            elif self._some(claim, number, name, option, option.count or 1, 0):
                return True
        return False

    def _all(self, claim: int, number: int, name: str, wanted: Sequence[Device]) -> bool:
        given = 0
        for device in wanted:
            if not self._give(claim, name, device):
                break
            given += 1
        if given == len(wanted) and self._request(claim, number + 1):
            return True
        for _ in range(given):
            self._take_back(claim)
        return False

    def _some(self, claim: int, number: int, name: str, option: Exact, count: int, first: int) -> bool:
        """Give `count` devices, from the device `first` on: others were tried in all combinations."""
        if not count:
            return self._request(claim, number + 1)
        for index in range(first, len(self._devices)):
            device = self._devices[index]
            if self._is_selected(claim, name, option, device) and self._give(claim, name, device):
                if self._some(claim, number, name, option, count - 1, index + 1):
                    return True
                self._take_back(claim)
        return False

    def _give(self, claim: int, name: str, device: Device) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise InputError(f"claim {self._claims[claim].name}: timed out: its requests have too many combinations")
        there = self._found[claim]
        if str(device) in self._taken or len(there) == MOST:
            return False
        for constraint in self._claims[claim].spec.devices.constraints:
            if constraint.covers(name) and not _holds(constraint, device, there):
                return False
        there.append(Given(name, device))
        self._taken.add(str(device))
        return True

    def _take_back(self, claim: int) -> None:
        self._taken.discard(str(self._found[claim].pop().device))

    def _is_selected(self, claim: int, name: str, option: Exact, device: Device) -> bool:
        key = claim, name, str(device)
        if key not in self._selected:
            self._selected[key] = all(self._evaluated(claim, name, option, device))
        return self._selected[key]

    def _evaluated(self, claim: int, name: str, option: Exact, device: Device) -> Iterator[bool]:
        above = f"class {option.deviceClassName}"
        for number, one in enumerate(self._classes[option.deviceClassName].selectors):
            yield _evaluate(one, device, f"{above}: selector #{number}")
        above = f"claim {self._claims[claim].name}, request {name}"
        for number, one in enumerate(option.selectors):
            yield _evaluate(one, device, f"{above}: selector #{number}")


def _evaluate(selector: DeviceSelector, device: Device, where: str) -> bool:
    try:
        return matches(selector.cel.expression, device)
    except InputError as error:
        raise InputError(f"{where}: CEL runtime error: {error.message.removeprefix('runtime error: ')}") from None


def _holds(constraint: Constraint, device: Device, given: Sequence[Given]) -> bool:
    """Return whether a constraint allows one more device; one without the attribute it never allows."""
    attribute = constraint.matchAttribute or constraint.distinctAttribute
    if attribute not in device.attributes:
        return False
    value = device.attributes[attribute]
    others = [one.device.attributes[attribute] for one in given if constraint.covers(one.request)]
    same = [type(other) is type(value) and other == value for other in others]
    return all(same) if constraint.matchAttribute else not any(same)
