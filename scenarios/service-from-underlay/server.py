"""Answers with the address that it sees, or with as many bytes as it is asked for."""

import socket

listening = socket.create_server(("", 8080))
while True:
    client, peer = listening.accept()
    with client:
        size = int.from_bytes(client.recv(8), "big")
        client.sendall(bytes(size) if size else peer[0].encode())
