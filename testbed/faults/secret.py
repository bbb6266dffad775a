"""A fault of which nobody is told."""

from dataclasses import asdict
from typing import Any

from testbed.errors import InputError
from testbed.faults.fault import Fault, Injection
from testbed.faults.rule import Rule
from testbed.kernel.impairments.cables import Impairment
from testbed.lab import Lab
from testbed.topology import Quality

HIDDEN = frozenset(Impairment._fields)
"""What a cable of a sealed lab does without a trace."""


class SecretInjection(Injection):
    """A fault that is in no event and in no list. Those who find it may mend it. InputError in a sealed lab for one
    that a command on a node would show."""

    def __init__(self, lab: Lab, fault: Fault) -> None:
        super().__init__(lab, fault)
        self.judged = True

    def _inject(self) -> None:
        changed = set(type(self.fault).model_fields) & asdict(Quality()).keys()
        port = self.lab.interface(self.fault.model_dump()["end"]).port if changed else None
        shown = isinstance(self.fault, Rule) or (changed - HIDDEN and not port)  # a lossless port has no qdisc of tc
        if self.lab.seal and shown:
            hint = "Hidden are link-loss and link-corrupt, and faults that leave what commands of a person would."
            raise InputError(f"fault {self.fault} is shown by tc or nft, and cannot be hidden", hint=hint)
        if changed:
            self.lab.interface(self.fault.model_dump()["end"]).sends.hide()
        super()._inject()

    def _emit(self, *_: Any, **__: Any) -> None: ...
