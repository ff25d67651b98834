"""The Lua scripts, by name. A call names a script by its digest; a server that does not know it is sent the script."""

import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AskError, MovedError, NoScriptError, ResponseError

from turntake.buffer.redis.url import Client


class Script:
    """One file of `lua/`. `flags` are written into its first line, and tell the server when the script may run."""

    def __init__(self, name: str, flags: str = "") -> None:
        text = (resources.files(__package__) / "lua" / f"{name}.lua").read_text()
        self._text = text.replace("#!lua\n", f"#!lua flags={flags}\n", 1) if flags else text
        self._digest = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, client: Client, keys: Sequence[str], args: Sequence[str | bytes | int]) -> Any:
        try:
            return await client.execute_command("EVALSHA", self._digest, len(keys), *keys, *args)
        except NoScriptError:
            return await client.execute_command("EVAL", self._text, len(keys), *keys, *args)

    async def replicated(
        self, client: Client, keys: Sequence[str], args: Sequence[str | bytes | int], replicas: int, within_ms: int
    ) -> tuple[Any, bool]:
        """The answer, and whether so many replicas had it in time. WAIT knows only of writes on its own connection."""
        wait = ("WAIT", replicas, within_ms)
        for command in (("EVALSHA", self._digest), ("EVAL", self._text)):
            try:
                answer, reached = await _on_one_connection(client, keys[0], (*command, len(keys), *keys, *args), wait)
                return answer, reached >= replicas
            except NoScriptError:
                continue
        raise NoScriptError(f"The server does not keep the script {self._digest}.")


def grouped(answer: Sequence[Any], first: int, size: int) -> Iterator[Sequence[Any]]:
    """A flat answer in groups of `size`, from its item `first` on: scripts answer so, and ZRANGE with scores."""
    for start in range(first, len(answer), size):
        yield answer[start : start + size]


async def _on_one_connection(client: Client, key: str, *commands: tuple[Any, ...]) -> list[Any]:
    if isinstance(client, Redis):
        async with client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute()
            return answers
    try:
        return await _on_one_node(client.get_node_from_key(key), *commands)
    except AskError as ask:
        # The slot is on its way, and these keys have arrived: for the next command alone, the new node lets us in.
        _, *answers = await _on_one_node(client.get_node(ask.host, ask.port), ("ASKING",), *commands)
        return answers
    except MovedError:
        await client.exists(key)  # makes redis-py learn where the slots are now
        return await _on_one_node(client.get_node_from_key(key), *commands)


async def pipelined(node: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The answers of one node of a cluster to several commands, in one round trip and without anybody else's help."""
    connection = node.acquire_connection()
    answers: list[Any] = []
    try:
        await connection.connect()
        await connection.send_packed_command([connection.pack_command(*command)[0] for command in commands])
        for command in commands:
            try:
                answers.append(await node.parse_response(connection, str(command[0])))
            except ResponseError as error:
                answers.append(error)
    except BaseException:
        # What was not read yet must not be taken for the answer to the next command.
        await connection.disconnect(nowait=True)
        raise
    finally:
        node.release(connection)
    for answer in answers:
        if isinstance(answer, ResponseError):
            raise answer
    return answers


async def _on_one_node(node: Any, *commands: tuple[Any, ...]) -> list[Any]:
    if node is None:
        raise MovedError("0 unknown:0")
    connection = node.acquire_connection()
    try:
        await connection.connect()
        answers = []
        for command in commands:
            await connection.send_command(*command)
            answers.append(await node.parse_response(connection, str(command[0])))
        return answers
    finally:
        node.release(connection)


SWAP = Script("swap")
SWAP_WHEN_FULL = Script("swap", "allow-oom")
LOAD = Script("load")
RESERVE_DUE = Script("reserve_due")
REPAIR_DUE = Script("repair_due")
REPAIR_TURNS = Script("repair_turns")
FORGET = Script("forget")
FORGET_IDS = Script("forget_ids")
DROP_EMPTY = Script("drop_empty")
SWAP_DOCUMENT = Script("swap_document")
