"""A gate at which an agent in another process waits until the test lets it go on."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# What such an agent's file begins with; it then says `await gate()`.
GATE = """
import asyncio, os

async def gate():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GATE_PORT"]))
    await reader.read()
    writer.close()
"""


class Gate:
    """While it is closed, nobody answers the connections that are made to it; once it is open, each is ended at once.

    `env` is what the agent's process needs in order to find it.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.env = {"GATE_PORT": str(listener.getsockname()[1])}

    def open(self) -> None:
        threading.Thread(target=self._let_through, daemon=True).start()

    def _let_through(self) -> None:
        with suppress(OSError):  # the test has ended
            while True:
                self._listener.accept()[0].close()


@contextmanager
def closed_gate() -> Iterator[Gate]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield Gate(listener)
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
