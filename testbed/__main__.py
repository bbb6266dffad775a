"""Start the command, also for `python -m testbed`. Until it is loaded, a signal ends it without a message."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, which may have an unrelated yaml.py

import os
import signal


def main() -> None:
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, lambda got, _: os._exit(128 + got))
    from testbed.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
