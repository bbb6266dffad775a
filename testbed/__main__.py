"""`python -m testbed` is the command `testbed`."""

from testbed.cli.main import main

if __name__ == "__main__":
    main()
