"""Commands that do not read what they are sent, and others beside them."""

import asyncio
import socket

from testbed.machine.live.clients import LAG_BYTES, Client, Clients

MIB = 1 << 20


def test_a_command_that_does_not_read_stops_the_machine_for_itself_alone():
    async def check() -> None:
        pairs = [socket.socketpair() for _ in range(2)]
        flooded, other = [Client((await asyncio.open_connection(sock=here))[1]) for here, _ in pairs]
        clients = Clients()
        for client in flooded, other:
            clients.join(client)
        clients.ask(flooded, 1, 11)
        flooded.send({"report": "x" * MIB})
        assert not clients.waiting
        clients.ask(other, 1, 12)
        assert clients.waiting
        while flooded.unread < LAG_BYTES // 2:
            flooded.send({"report": "x" * MIB})
        assert not clients.waiting, "it would be cut off"
        clients.leave(flooded)
        assert clients.waiting
        clients.answer({"id": 12, "response": None})
        assert not clients.waiting
        for client in flooded, other:
            client.writer.transport.abort()
        for _, there in pairs:
            there.close()

    asyncio.run(check())
