"""A view of the kernel that follows nothing, to be compared with."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from testbed.kernel.rtnetlink import Rtnetlink


def follow_nothing(view: type, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have the class KernelView follow nothing."""

    def begin(self: Any) -> None:
        self._kernels, self._asking, self._watched, self._quiet = Rtnetlink(), Rtnetlink(), {}, Counter()
        self._closed = False

    def forget(_: Any, node: Any) -> None:
        node.seen = sys.modules[view.__module__].Seen(node.kernel)  # of a pod that is to go

    patch(view, "__init__", begin)
    patch(view, "forget", forget)
    for name in "watch", "drain":
        patch(view, name, lambda *_: None)
