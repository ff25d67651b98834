"""A small platform of our own: a board that takes notes of ten characters, and the replies that go there."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from harness.platforms.server import FakeAnswer, FakeRequest, Platform
from turntake import ConversationKey, GiveUp, RetryLater, Rules, Turn, TurnTake
from turntake.arrival import Arrival
from turntake.clock import Clock
from turntake.deliver.options import ReplyOptions
from turntake.deliver.replies import Replies
from turntake.errors import SendFailed
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi
from turntake.rules.conversation import Touch
from turntake.rules.message import Message
from turntake.rules.records import TurnRecord

AT_ONCE = Rules(silence_ms=0, typing_inference_ms=0)
ONE_ATTEMPT = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1)
ANN = ConversationKey.of("ann", channel="notes", account="us")
TO = Recipient(ANN, "turn_1", (Message("m1", "hi"),))


class Board(Platform):
    """Takes notes of at most ten characters."""

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        if asked.path != "/notes":
            return FakeAnswer(body={"ok": True})
        note = asked.json
        if len(note["text"]) > 10:
            return FakeAnswer(400, {"error": "too long"})
        self.took(note["to"], note["text"])
        return FakeAnswer(body={"id": f"n{len(self.sent)}"})


class Notes(ReplyApi):
    longest = 10
    typing_ms = 40

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        said: dict[str, str] = {"quoted": to.reply_to} if to.reply_to else {}
        said |= {"to": to.key.conversation, "text": text, "from": to.account, "thread": to.thread, "id": reply_id}
        return ApiCall(f"{self._values['api_base']}/notes", json.dumps(said).encode())

    def check(self, response: ApiResponse) -> str:
        if response.status == 429:
            raise RetryLater(float(response.headers["retry-after"]), "too many notes")
        if response.status >= 500:
            raise SendFailed("the board fell down")
        if response.status >= 400:
            raise GiveUp(json.loads(response.body)["error"])
        return str(json.loads(response.body)["id"])

    def typing_call(self, to: Recipient) -> ApiCall:
        return ApiCall(f"{self._values['api_base']}/typing")

    def typing_stopped_call(self, to: Recipient) -> ApiCall:
        return ApiCall(f"{self._values['api_base']}/stopped")


def replies(board: Board, *, timeout_ms: int = 5_000, again: bool = True, clock: Clock | None = None) -> Replies:
    """Typing is shown if there is a clock to show it by."""
    senders = {("notes", account): Notes({"api_base": board.url}) for account in ("", "sales")}
    options = ReplyOptions(timeout_ms=timeout_ms, typing=clock is not None, on_unknown="resend" if again else "skip")
    return Replies(senders, options=options, clock=clock)


async def answered(out: Replies, answer: Callable[[Turn], Awaitable[object]], rules: Rules = AT_ONCE) -> TurnRecord:
    """The turn, once it has ended; no attempt waits for its time."""
    async with TurnTake("memory://", rules=rules, agent=answer, outbound=out) as turns, turns.events.watch() as events:
        await turns.accept([Arrival(ANN, Message("m1", "hi"))])
        async with asyncio.timeout(20):
            while (event := await events.get()).kind not in ("answered", "dead-lettered"):
                if event.kind in ("failed", "retrying"):
                    await turns.touch(ANN, Touch("flush"))
        record = await turns.store.history.turn(event.turn_id)
    await out.aclose()
    assert record is not None
    return record
