"""Replies that leave for a callback: in order, once each as far as we can tell, and saved before they go."""

import asyncio
import base64
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from harness.agent_server import AgentServer, Request, Step, Wire, agent_server, answers, never_answers
from harness.conversation import ADA, Talk, talking
from turntake import ConversationKey, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.clock import SystemClock
from turntake.deliver.callback import Callback
from turntake.deliver.http_agent import HttpSink
from turntake.platforms.replies import Recipient
from turntake.rules.conversation import Retry, Settlement
from turntake.rules.live import Said
from turntake.rules.records import Claim
from turntake.rules.scopes import DEFAULT

SECRET = "whsec_" + base64.b64encode(b"c" * 32).decode()


async def two_replies(turn: Turn) -> list[str]:
    return ["one", "two"]


def texts(server: AgentServer) -> list[str]:
    return [event["data"]["text"] for event in server.events]


async def test_replies_arrive_signed_and_in_order() -> None:
    """Each is an event of its own, with an id of its own."""
    async with agent_server() as server, talking(two_replies, outbound=Callback(server.url, secrets=SECRET)) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
    events = [Webhook(SECRET).verify(request.body, request.headers) for request in server.requests]
    assert [event["type"] for event in events] == ["messages.reply.ready"] * 2
    assert [event["id"] for event in events] == [f"{record.id}.0", f"{record.id}.1"]
    assert [request.headers["webhook-id"] for request in server.requests] == [f"{record.id}.0", f"{record.id}.1"]
    assert texts(server) == ["one", "two"]


@pytest.mark.parametrize("step", [answers(500), answers(408), answers(409), answers(425), answers(429), answers(503)])
async def test_what_left_is_not_sent_again(step: Step) -> None:
    """The second reply fails once: only the second is sent again, the same bytes, and the agent is not asked again."""
    asked = []

    async def agent(turn: Turn) -> list[str]:
        asked.append(turn.attempt)
        return ["one", "two"]

    async with (
        agent_server(answers(200), step, answers(200)) as server,
        talking(agent, outbound=Callback(server.url, retry_ms=1)) as talk,
    ):
        await talk.say("Hey")
        record = await talk.outcome()
    assert (record.status, asked, texts(server)) == ("answered", [1], ["one", "two", "two"])
    assert server.requests[1].body == server.requests[2].body


@pytest.mark.parametrize("step", [answers(410, "gone"), answers(307, location="/elsewhere")])
async def test_a_refusal_is_final(step: Step) -> None:
    """Nothing more is sent, and the dead letter says why."""
    async with agent_server(step) as server, talking(two_replies, outbound=Callback(server.url)) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
        letter = await talk.letter()
    assert (record.status, letter.reason, len(server.requests)) == ("dead", "given up", 1)
    assert "The callback answered" in letter.error


async def test_a_wait_for_the_callback_costs_no_attempt() -> None:
    rules = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1)
    async with (
        agent_server(answers(503), answers(429), answers(200)) as server,
        talking(two_replies, rules=rules, outbound=Callback(server.url, retry_ms=1)) as talk,
    ):
        await talk.say("Hey")
        record = await talk.outcome()
    assert (record.status, texts(server)) == ("answered", ["one", "one", "one", "two"])


@pytest.mark.parametrize("key", [ADA, ConversationKey.of("ada", channel="telegram")])
async def test_it_can_send_only_for_its_channel_and_if_configured(key: ConversationKey) -> None:
    """Otherwise replies stay with their turn, even those a handler sends early."""
    async with agent_server() as server:
        callback, nowhere = Callback(server.url), Callback("")
        assert (callback.can_send(key), nowhere.can_send(key)) == (key is ADA, False)
        await nowhere.send(Recipient(key, "turn_1", ()), 0, "kept")
        await callback.send(Recipient(key, "turn_1", ()), 0, "sent")
        await callback.aclose()
        await nowhere.aclose()
    assert texts(server) == (["sent"] if key is ADA else [])


async def test_a_saved_reply_survives_a_crash(tmp_path: Path) -> None:
    """The worker dies after saving and before sending; the next one sends, and does not ask the agent again."""
    store = f"sqlite:///{tmp_path}/turns.db"
    async with (
        agent_server(answers(200, {"reply": "saved"})) as agent,
        agent_server(never_answers, answers(200)) as callback,
        talking(HttpSink(agent.url), store, outbound=Callback(callback.url), lease_ms=1_000) as doomed,
    ):
        await doomed.say("Hey")
        await callback.request(1)
        await die(doomed.turns)
        async with talking(HttpSink(agent.url), store, outbound=Callback(callback.url)) as talk:
            record = await talk.outcome()
    assert record.turn is not None
    assert (record.status, record.turn.progress.replies, record.turn.attempt) == ("answered", ("saved",), 1)
    assert len(agent.requests) == 1
    assert callback.requests[0].body == callback.requests[1].body


async def test_a_crash_before_the_answer_hands_over_the_same_bytes(tmp_path: Path) -> None:
    """Read back from the file by another worker, the event is the same but for the attempt."""
    store = f"sqlite:///{tmp_path}/turns.db"
    async with (
        agent_server(never_answers, answers(200, {"reply": "late"})) as agent,
        talking(HttpSink(agent.url), store, lease_ms=1_000) as doomed,
    ):
        await doomed.say("Hey 👋")
        await agent.request(1)
        await die(doomed.turns)
        async with talking(HttpSink(agent.url), store) as talk:
            await talk.outcome()
    first, again = agent.requests
    assert first.body.replace(b'"attempt":1,', b'"attempt":2,') == again.body


async def die(turns: TurnTake) -> None:
    """Stops everything where it stands, as a killed process would: nothing is settled or handed back."""
    worker = turns._worker
    assert worker is not None
    tasks = [*turns._tasks, worker._claiming, worker._extending, *worker._running.values()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def once(told: asyncio.Event) -> Step:
    """Takes its time to answer, until told."""

    async def step(request: Request, wire: Wire) -> None:
        await told.wait()
        await answers(200)(request, wire)

    return step


async def accepted(talk: Talk, agent: AgentServer, text: str = "Hey") -> str:
    """The id of a turn that the agent promised to complete."""
    await talk.say(text)
    return str((await agent.request(1)).event["id"])


@pytest.mark.parametrize("store", ["memory://", "sqlite:///"])
async def test_completing_sends_once(store: str, tmp_path: Path) -> None:
    """However often the agent reports, and even while the reply is on its way: the first result goes out, once."""
    holding = asyncio.Event()
    url = store if store == "memory://" else f"{store}{tmp_path}/turns.db"
    async with (
        agent_server(answers(202)) as agent,
        agent_server(once(holding)) as callback,
        talking(HttpSink(agent.url), url, outbound=Callback(callback.url)) as talk,
    ):
        turn_id = await accepted(talk, agent)
        await talk.turns.complete(turn_id, ("first",))
        await callback.request(1)
        during = await talk.turns.complete(turn_id, ("second",))
        holding.set()
        record = await talk.outcome()
        after = await talk.turns.complete(turn_id, ("third",))
        assert talk.seen.empty(), "completing again is no news"
    assert during is not None
    assert record == after
    assert record.turn is not None
    assert (record.status, record.turn.progress.replies, texts(callback)) == ("answered", ("first",), ["first"])
    assert len(agent.requests) == 1


async def test_completing_does_not_stop_who_sends_the_answer() -> None:
    """The worker may have claimed the saved reply before the report that saved it is back: it is left to its work."""
    holding = asyncio.Event()

    class Slow(MemoryStore):
        """Lets the worker be faster than whoever just handed a claim back."""

        async def settle(self, claim: Claim, settlement: Settlement) -> bool:
            is_settled = await super().settle(claim, settlement)
            if isinstance(settlement, Retry):
                await talk.turns.receive("Hi", conversation="bob", id="1")  # wakes the worker
                await callback.request(1)
            return is_settled

    async with (
        agent_server(answers(202)) as agent,
        agent_server(once(holding)) as callback,
        talking(HttpSink(agent.url), Slow(SystemClock()), outbound=Callback(callback.url)) as talk,
    ):
        turn_id = await accepted(talk, agent)
        await talk.turns.complete(turn_id, ("done",))
        holding.set()
        record = await talk.outcome()
    assert (record.id, record.status, texts(callback)) == (turn_id, "answered", ["done"])


async def test_failing_does_not_stop_a_reply_on_its_way() -> None:
    """A late report of failure changes nothing once the answer is saved."""
    holding = asyncio.Event()
    async with (
        agent_server(answers(200, {"reply": "here"})) as agent,
        agent_server(once(holding)) as callback,
        talking(HttpSink(agent.url), outbound=Callback(callback.url)) as talk,
    ):
        turn_id = await accepted(talk, agent)
        await callback.request(1)
        await talk.turns.fail(turn_id, "too late")
        holding.set()
        record = await talk.outcome()
    assert (record.status, texts(callback)) == ("answered", ["here"])


async def test_completing_leaves_the_next_turn_its_time() -> None:
    """What the person types meanwhile still waits for its own silence."""
    async with (
        agent_server(answers(202)) as agent,
        agent_server(answers(200)) as callback,
        talking(HttpSink(agent.url), outbound=Callback(callback.url)) as talk,
    ):
        turn_id = await accepted(talk, agent)
        await talk.turns.rule_keeper.change({DEFAULT: Said({"silence_ms": 20_000})}, "test")
        await talk.say("and")
        await talk.turns.complete(turn_id, ("done",))
        await talk.until("answered")
        conversation = await talk.turns.store.find(ADA)
    assert conversation is not None
    assert (conversation.conversation.state, texts(callback)) == ("collecting", ["done"])
    assert conversation.conversation.buffer is not None
    assert conversation.conversation.buffer.due.reason == "silence"
