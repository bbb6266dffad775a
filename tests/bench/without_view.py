"""A view of the kernel that follows nothing, to be compared with."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from testbed.kernel.rtnetlink import Rtnetlink


def follow_nothing(view: type, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have the class KernelView follow nothing."""

    def begin(self: Any) -> None:
        self._kernels, self._asking, self._watched, self._quiet = Rtnetlink(), Rtnetlink(), {}, Counter()
        self._closed = False

    patch(view, "__init__", begin)
    for name in "watch", "forget", "drain":
        patch(view, name, lambda *_: None)
