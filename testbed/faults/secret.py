"""A fault of which nobody is told."""

from typing import Any

from testbed.faults.fault import Fault, Injection
from testbed.lab import Lab


class SecretInjection(Injection):
    """A fault that is in no event and in no list. Those who find it may mend it."""

    def __init__(self, lab: Lab, fault: Fault) -> None:
        super().__init__(lab, fault)
        self.judged = True

    def _inject(self) -> None:
        super()._inject()
        if end := getattr(self.fault, "end", ""):
            self.lab.interface(end).sends.secret = True

    def _emit(self, *_: Any) -> None: ...
