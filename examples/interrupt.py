"""Second thoughts: a message during the answer stops it, and everything is answered once."""

import asyncio

from turntake import Rules, Turn, TurnTake

turns = TurnTake("memory://", rules=Rules(silence_ms=100, typing_inference_ms=100, on_busy="interrupt"))


@turns.handler
async def answer(turn: Turn) -> None:
    print(f"Thinking about: {turn.text!r}")
    await turns.clock.sleep(500)
    await turn.commit()  # the point of no return: book it now
    print(f"Booked: {turn.text!r}")


async def main() -> None:
    async with turns:
        await turns.receive("A table for two, please", conversation="ada", id="m1")
        await turns.clock.sleep(300)
        await turns.receive("Sorry, for three", conversation="ada", id="m2")
        await turns.clock.sleep(1_200)


if __name__ == "__main__":
    asyncio.run(main())
