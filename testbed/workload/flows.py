"""Flows of RDMA WRITEs that a lab's timers keep going."""

from testbed.lab import HostInterface
from testbed.topology import Family
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair, open_endpoint

OUTSTANDING = 8
"""Messages under way at most: a flow that the network delays does not queue up what it will send later."""
FOR_EVER = 7
"""retry_cnt with which rxe never gives up."""


class Flow:
    """A queue pair from one NIC to another, for messages of `size` bytes."""

    def __init__(
        self, source: HostInterface, target: HostInterface, flow_label: int, *, family: Family, size: int
    ) -> None:
        self._size = size
        self._posted: list[int] = []
        self._near = open_endpoint(source, family, memory=size)
        self._far = open_endpoint(target, family, memory=size)
        connect_pair(self._near, self._far, Attributes(flow_label=flow_label, retry_cnt=FOR_EVER))

    def post(self) -> None:
        """Post one more message, unless OUTSTANDING are under way."""
        while self._posted and self._near.done(self._posted[0]):
            self._near.wait(self._posted.pop(0), within=0)
        if len(self._posted) < OUTSTANDING:
            self._posted.append(self._near.post_write(self._size))

    def close(self) -> None:
        self._near.close()
        self._far.close()
