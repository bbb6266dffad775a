"""What nodes of a lab keep when its file changes: their numbers, from which MACs follow, and planned addresses."""

from testbed.topology.plan import Node, Plan


class Kept:
    """The numbers of nodes. Without a lab they follow from the order of the file; one that is in the lab keeps its
    number, and no other node gets that of one that has gone."""

    def __init__(self, plan: Plan | None) -> None:
        self._nodes = plan.nodes if plan else {}
        self.last = plan.last_number if plan else 0
        """The highest number so far."""

    def node(self, name: str, kind: str) -> Node | None:
        """Return the lab's node of this name, if it is of the same kind."""
        found = self._nodes.get(name)
        return found if found and found.kind == kind else None

    def number(self, name: str, kind: str) -> int:
        """Return the number of a node, which is asked for once."""
        if found := self.node(name, kind):
            return found.number
        self.last += 1
        return self.last
