"""A user's conflist, tried out as cnitool does."""

import os

from testbed.cni.tool import CniCommand
from testbed.executor import Context
from testbed.protocol import CniAnswer
from testbed.protocol.requests import Cni
from testbed.scenario.event_log import EventLog


def run(request: Cni, context: Context) -> CniAnswer:
    os.chdir(context.files)  # places in errors start with the name as the user gave it
    trial = CniCommand(request)
    if request.command == "load":
        return {"result": None, "kept": []}
    return trial.run(context.out, EventLog(lambda event: context.emit({"event": event})).emit)
