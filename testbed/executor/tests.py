"""A user's pytest files."""

import os
import sys

from testbed.executor import Context
from testbed.protocol.requests import Pytest
from testbed.scenario import loading
from testbed.scenario.session import Session


def run(request: Pytest, context: Context) -> int:
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
