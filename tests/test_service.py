"""`TurnTake`, the object a user holds: what it checks, and what it keeps between two runs."""

from pathlib import Path

import pytest

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
