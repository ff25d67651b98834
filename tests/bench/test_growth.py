"""What is kept shrinks at each step, and nothing is left in the end."""

from bench.growth import measured


async def test_each_step_of_forgetting_takes_less() -> None:
    """In a file, which grows by pages: with few people the figures are rough."""
    found = await measured("sqlite", 200, 3)
    assert found["answered"] > found["waiting"] > found["only its id"] > found["forgotten"]
    assert found["forgotten"] < 200
    assert found["dead letter"] > found["waiting"]
