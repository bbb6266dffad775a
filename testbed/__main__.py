"""`python -m testbed` is the command `testbed`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working directory, where a yaml.py may be that has nothing to do with ours

from testbed.cli.main import main

if __name__ == "__main__":
    main()
