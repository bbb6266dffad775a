"""The program that a launcher starts as a rank: it passes all it has to fork_server.py's process, and ends as the rank.

It runs as ``python3 -I -S stub.py PROGRAM ARGUMENT…`` and imports next to nothing, to begin at once.
"""

import _socket
import json
import os
import signal
import sys

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
connection.connect("/run/testbed/ranks.sock")
wanted = {"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}
namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("net", "uts", "ipc", "mnt")]
if processes := os.environ.get("TESTBED_PID_NAMESPACE"):
    namespaces.append(os.open(processes, os.O_RDONLY))
handles = b"".join(handle.to_bytes(4, sys.byteorder) for handle in namespaces)
connection.sendmsg([json.dumps(wanted).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handles)])
status = int(connection.recv(16) or b"1")
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -status)
os._exit(status)
