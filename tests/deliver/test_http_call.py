"""The one HTTP call that everything goes through: its limits, and what is known when it fails."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from harness.agent_server import Request, Step, Wire, agent_server, answers, floods, never_answers, resets, trickles
from turntake.deliver.http_call import LARGEST_BODY, HttpCaller
from turntake.errors import CallFailed
from turntake.platforms.replies import ApiCall, ApiResponse


async def called(url: str, timeout_ms: int = 5_000, connect_ms: int | None = None) -> ApiResponse:
    async with HttpCaller("The agent", timeout_ms, connect_ms) as caller:
        return await caller.call(ApiCall(url, b"hi"))


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_any_status_is_an_answer() -> None:
    """Header names are lower case; a redirect is returned and not followed."""
    async with agent_server(answers(302, "over there", Location="http://127.0.0.1:1/")) as server:
        response = await called(server.url)
    assert (response.status, response.headers["location"], response.body) == (302, "http://127.0.0.1:1/", b"over there")
    assert not response.is_cut


async def test_what_every_call_says_of_itself() -> None:
    """Who calls, and that the answer may not be compressed: a small one could unpack to a huge one."""
    async with agent_server(answers(200, "", Set_Cookie="a=b")) as server:
        async with HttpCaller("The agent", 5_000, headers={"accept": "text/plain"}) as caller:
            for _ in range(2):
                await caller.call(ApiCall(server.url, b"hi", {"x-own": "1"}, "PUT"))
        headers = server.requests[1].headers
    assert headers["user-agent"].startswith("turntake/")
    assert (headers["accept-encoding"], headers["accept"], headers["x-own"]) == ("identity", "text/plain", "1")
    assert "cookie" not in headers


@pytest.mark.parametrize(("length", "is_cut"), [(LARGEST_BODY, False), (LARGEST_BODY + 1, True)])
async def test_a_long_answer_is_cut(length: int, is_cut: bool) -> None:
    async with agent_server(answers(200, "x" * length)) as server:
        response = await called(server.url)
    assert (len(response.body), response.is_cut) == (LARGEST_BODY, is_cut)


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async with agent_server(floods) as server:
        assert (await called(server.url)).is_cut


async def test_an_answer_that_is_cut_costs_its_connection() -> None:
    """The rest of it is still on its way, so the other side is told at once that nobody reads it."""

    async def goes_on(request: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10485760\r\n\r\n" + b"x" * (LARGEST_BODY + 1))
        await never_answers(request, wire)

    async with agent_server(goes_on) as server, HttpCaller("The agent", 600_000) as caller:
        assert (await caller.call(ApiCall(server.url, b"hi"))).is_cut
        await asyncio.wait_for(server.requests[0].gone.wait(), 20)


@pytest.mark.parametrize("step", [never_answers, trickles])
async def test_the_whole_call_has_a_time_limit(step: Step) -> None:
    """Also if each piece comes in time. The call was handed over, so the other side may have acted on it."""
    async with agent_server(step) as server:
        with pytest.raises(CallFailed, match=r"The agent gave no whole answer within 200 ms\.") as failed:
            await called(server.url, 200)
    assert (failed.value.reason, failed.value.is_handed_over) == ("within 200 ms", True)


async def test_a_call_whose_connection_broke_may_have_been_handed_over() -> None:
    async with agent_server(resets) as server:
        with pytest.raises(CallFailed) as failed:
            await called(server.url)
    assert failed.value.is_handed_over
    assert failed.value.reason.startswith("(")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no.such.host.invalid/", "https://[broken"])
async def test_what_cannot_be_reached_was_not_handed_over(url: str) -> None:
    """The reason names no address, since one may hold a token."""
    with pytest.raises(CallFailed) as failed:
        await called(url)
    assert not failed.value.is_handed_over
    assert "1" not in failed.value.reason


async def test_connecting_has_a_limit_of_its_own(mute: int) -> None:
    """The port takes the connection, and the handshake of TLS never ends."""
    with pytest.raises(CallFailed) as failed:
        await asyncio.wait_for(called(f"https://127.0.0.1:{mute}/", 60_000, connect_ms=100), 20)
    assert (failed.value.reason, failed.value.is_handed_over) == ("(ConnectTimeout)", False)
