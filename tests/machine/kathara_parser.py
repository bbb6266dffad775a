"""Prints, as JSON, what Kathará's own parser makes of the labs in these directories: the devices, or the refusal."""

import json
import logging
import sys

from Kathara.parser.netkit.DepParser import DepParser
from Kathara.parser.netkit.LabParser import LabParser


def main() -> None:
    logging.disable(logging.CRITICAL)
    found = {}
    for directory in sys.argv[1:]:
        try:
            devices = {
                name: {
                    "interfaces": {
                        str(number): [interface.link.name, interface.mac_address or ""]
                        for number, interface in sorted(device.interfaces.items())
                    },
                    "image": device.meta.get("image", ""),
                    "sysctls": {key: str(value) for key, value in device.meta["sysctls"].items()},
                    "env": device.meta["envs"],
                    "exec": device.meta["exec_commands"],
                }
                for name, device in LabParser.parse(directory).machines.items()
            }
            DepParser.parse(directory)
            found[directory] = {"devices": devices}
        except (Exception, SystemExit) as error:
            found[directory] = {"refused": repr(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
