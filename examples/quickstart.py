"""A burst becomes one turn. Run it: python examples/quickstart.py"""

import asyncio

from turntake import Rules, Turn, TurnTake

turns = TurnTake("memory://", rules=Rules(silence_ms=300, typing_inference_ms=500))


@turns.handler
async def answer(turn: Turn) -> None:
    print(f"The agent is called once, with {len(turn.messages)} messages ({turn.reason}):")
    for message in turn.messages:
        print(f"  {message.text}")


async def main() -> None:
    async with turns:
        for number, text in enumerate(["Hey", "I have a question about my order", "#12345", "it hasn't arrived"]):
            receipt = await turns.receive(text, conversation="ada", id=f"m{number}")
            print(f"{text!r} waits because of {receipt.reason}")
            await turns.clock.sleep(100)
        await turns.clock.sleep(1_000)


if __name__ == "__main__":
    asyncio.run(main())
