"""Assignment of a pod's devices to its networks, as Multus, kubelet and the device plugins do it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.cni.objects.manifests import Object
from testbed.cni.objects.multus import RESOURCE_NAME
from testbed.cni.runtime.scheduling import Held
from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Conflist

RXE = {"type": "rxe"}


class Given:
    """The devices of one pod, assigned to its networks in order."""

    def __init__(self, held: Held) -> None:
        self._shared = held.shared
        self._vfs: dict[str, Iterator[str]] = {name: iter(vfs) for name, vfs in held.vfs.items()}

    def device(self, definition: Object, network: Conflist) -> Conflist:
        """Return the network with the VF of its resource, or with the RDMA device that its master shares."""
        plugins = [dict(one) for one in network.plugins]
        vfs = self._vfs.get(definition.annotations.get(RESOURCE_NAME, ""), iter(()))
        if vf := next(vfs, None):
            plugins[0] |= {"deviceID": vf, **({"device": vf} if plugins[0]["type"] == "host-device" else {})}
        elif RXE["type"] not in network.types and any(map(self._is_shared, plugins)):
            plugins.append(RXE)
        else:
            return network
        return conflist.make({**json.loads(network.data), "plugins": plugins})

    def _is_shared(self, plugin: Mapping[str, Any]) -> bool:
        """Return whether the master is an interface that shares its RDMA device, or a VLAN device on one."""
        return str(plugin.get("master", "")).partition(".")[0] in self._shared
