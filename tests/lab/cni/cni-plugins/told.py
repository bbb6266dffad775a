"""A module of the plugin beside it."""

import json
import sys


def note(config):
    sys.stderr.write(json.dumps({key: value for key, value in config.items() if key != "prevResult"}) + "\n")
