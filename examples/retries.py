"""An agent that fails, asks for time, and gives up: what becomes of each turn."""

import asyncio

from turntake import GiveUp, RetryLater, Rules, Turn, TurnTake

turns = TurnTake("memory://", rules=Rules(silence_ms=0, typing_inference_ms=0))


@turns.handler
async def answer(turn: Turn) -> str:
    if turn.text == "busy" and turn.attempt < 3:
        print("The model asks for time: no attempt is used up")
        raise RetryLater(after=0.2)
    if turn.text == "impossible":
        raise GiveUp("this agent only speaks English")
    return f"answered at attempt {turn.attempt}"


async def main() -> None:
    async with turns:
        for text in ["busy", "impossible"]:
            await turns.receive(text, conversation=text, id="m1")
        await turns.clock.sleep(1_000)
        for letter in (await turns.store.letters.list(limit=10)).items:
            print(f"Dead letter: {letter.count} message, {letter.reason}: {letter.error}")


if __name__ == "__main__":
    asyncio.run(main())
