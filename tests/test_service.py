"""`TurnTake`, the object a user holds: what it checks, and what it keeps between two runs."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from harness.servers import calling
from harness.turns import ADA, silent
from turntake import Arrival, ConversationKey, InvalidMessage, Message, TurnTake
from turntake.testing.clock import VirtualClock


async def test_a_key_built_by_hand_is_checked() -> None:
    """An unnormalised key would be stored under a spelling that nobody can read back."""
    async with TurnTake("memory://", agent=silent) as turns:
        with pytest.raises(InvalidMessage):
            await turns.accept([Arrival(ConversationKey("Jose\u0301"), Message("m1", "hi"))])


async def test_a_clock_set_back_between_two_runs_stalls_and_reorders_nothing(tmp_path: Path) -> None:
    """What was seen once is the least the time can be."""
    before, after = VirtualClock(2_000_000_000_000), VirtualClock(2_000_000_000_000 - 3_600_000)
    async with TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept", clock=before) as turns:
        await turns.receive("first", conversation="ada", id="m1")
    async with TurnTake(f"sqlite:///{tmp_path}/t.db", role="accept", clock=after) as turns:
        receipt = await turns.receive("second", conversation="ada", id="m2")
        snapshot = await turns.store.find(ADA)
    assert receipt.due_at is not None
    assert receipt.due_at <= before.now() + 30_000
    assert after.now() >= before.now()
    assert snapshot is not None
    assert [message.text for message in snapshot.messages] == ["first", "second"]


async def test_its_lifespan_runs_it_inside_another_app() -> None:
    """`FastAPI(lifespan=turns.lifespan)`; a mounted app's own lifespan is not run."""
    turns = TurnTake("memory://", agent=silent)
    outer = Starlette(routes=[Mount("/chat", turns.asgi())], lifespan=turns.lifespan)
    async with outer.router.lifespan_context(outer), calling(outer) as client:
        said = await client.post("/chat/v1/messages", json={"conversation": "ada", "id": "1", "text": "hi"})
        assert said.status_code == 202
    assert not turns.is_running
