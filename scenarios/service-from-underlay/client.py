"""Asks a server many times, then for a lot: prints microseconds a request, MB/s, and the peer that the server saw."""

import socket
import sys
import time

address, port, requests = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def ask(size: int) -> bytes:
    with socket.create_connection((address, port), 5) as server:
        server.sendall(size.to_bytes(8, "big"))
        answer = bytearray()
        while chunk := server.recv(1 << 16):
            answer += chunk
    return bytes(answer)


try:
    seen = ask(0).decode()
except OSError as error:
    print(type(error).__name__)
    sys.exit()
if not requests:
    sys.exit()
began = time.monotonic()
for _ in range(requests):
    ask(0)
each = (time.monotonic() - began) / requests
began = time.monotonic()
received = len(ask(8 << 20))
print(f"{each * 1e6:.0f} {received / (time.monotonic() - began) / 1e6:.1f} {seen}")
