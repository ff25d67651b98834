"""How long to wait and what to do meanwhile: the rules a conversation lives by."""

from typing import Annotated, Literal

import msgspec

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=7 * 24 * 3_600_000)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One conversation's rules. Every field has a default that suits live chat."""

    enabled: bool = True
    silence_ms: Milliseconds = 1_000
    typing_inference_ms: Milliseconds = 3_000
    max_wait_ms: Milliseconds = 30_000
    min_messages: Positive = 1
    max_messages: Positive = 20
    capacity: Positive = 50
    window_ms: Milliseconds = 0
    activity_ms: Milliseconds = 5_000
    ttl_ms: Milliseconds = 3_600_000
    on_busy: Literal["queue", "interrupt"] = "queue"
    max_interrupts: Count = 3
    max_attempts: Positive = 3

    def __post_init__(self) -> None:
        if self.min_messages > self.max_messages:
            raise ValueError("min_messages is above max_messages: lower one or raise the other.")


PRESETS: dict[str, Rules] = {
    "quick-support": Rules(silence_ms=500, typing_inference_ms=500, max_wait_ms=5_000),
    "complex-inquiry": Rules(silence_ms=2_000, min_messages=2, max_wait_ms=60_000),
    "high-volume": Rules(silence_ms=1_000, max_messages=10, max_wait_ms=10_000),
    "interview": Rules(silence_ms=10_000, typing_inference_ms=5_000),
}
