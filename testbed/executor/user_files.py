"""A user's pytest files; and a user's conflist, tried out as cnitool does."""

import os
import sys

from testbed.cni.tool import CniCommand
from testbed.executor import Context
from testbed.protocol import CniAnswer
from testbed.protocol.requests import Cni, Pytest
from testbed.scenario import loading
from testbed.scenario.event_log import EventLog
from testbed.scenario.session import Session


def run_tests(request: Pytest, context: Context) -> int:
    os.chdir(context.files)
    loading.add(context.files)
    session = Session(
        context.files,
        context.out,
        context.emit,
        limit_s=request.limit_s,
        test_limit_s=request.test_limit_s,
        tests=request.tests,
        options=request.options,
    )
    sys.stdout = sys.stderr = session.terminal
    return session.run(request.arguments)


def try_conflist(request: Cni, context: Context) -> CniAnswer:
    os.chdir(context.files)  # places in errors start with the name as the user gave it
    trial = CniCommand(request)
    if request.command == "load":
        return {"result": None, "kept": []}
    return trial.run(context.out, EventLog(lambda event: context.emit({"event": event})).emit)
