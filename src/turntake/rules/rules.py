"""How long to wait and what to do meanwhile: the rules a conversation lives by."""

from functools import cached_property
from typing import Annotated, Literal, Protocol, Self

import msgspec
from msgspec import Meta

from turntake.rules.field_checks import check_fields
from turntake.rules.text_format import TextFormat
from turntake.rules.words import LONGEST_PHRASE, Words, words_in

Milliseconds = Annotated[int, Meta(ge=0, le=7 * 24 * 3_600_000)]
Positive = Annotated[int, Meta(ge=1, le=100_000)]
Bytes = Annotated[int, Meta(ge=1, le=64 * 1024 * 1024)]
LONGEST_KEPT_MS = 10 * 365 * 24 * 3_600_000
Count = Annotated[int, Meta(ge=0, le=100_000)]
Priority = Annotated[int, Meta(ge=-10, le=10)]
PerMinute = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Share = Annotated[int, Meta(ge=1, le=10_000)]
# A thousand phrases are more than anybody reads, and all of them are in the memory of every process.
Phrases = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=LONGEST_PHRASE)], ...],
    Meta(max_length=1_000, extra={"has_spaces": True}),
]
LONGEST_NOTICE = 4_096  # in characters: one message on every platform, in a few languages
OnStale = Literal["send", "discard", "regenerate"]


class RulesByAgent(Protocol):
    """What a conversation lives by, once its agent is known.

    A message need not name an agent: then its conversation's is the one that an earlier message named, which only the
    store knows.
    """

    def of(self, agent: str) -> "Rules": ...


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One conversation's rules. Every field has a default that suits live chat.

    A field's type, default and sentence are written here only; its flag, its environment variable, its line in
    turntake.toml and the reference page are made from them. Raises ValueError for a value that is not allowed, and for
    rules of which one could never count.
    """

    enabled: Annotated[bool, Meta(description="Off: every message is a turn of its own, at once.")] = True
    silence_ms: Annotated[
        Milliseconds, Meta(description="How long a person must be silent before their turn is due.")
    ] = 1_000
    typing_inference_ms: Annotated[
        Milliseconds,
        Meta(description="The silence after messages in quick succession, which mean that the person goes on."),
    ] = 3_000
    max_wait_ms: Annotated[Milliseconds, Meta(description="The longest wait, counted from a turn's first message.")] = (
        30_000
    )
    min_messages: Annotated[Positive, Meta(description="Fewer messages than this wait until `max_wait_ms`.")] = 1
    max_messages: Annotated[Positive, Meta(description="A turn with this many messages is due at once.")] = 20
    capacity: Annotated[
        Positive,
        Meta(
            description="The most messages that a buffer holds before it is due whatever the other rules say, and the "
            "most that one turn has: what came beyond them is a turn of its own."
        ),
    ] = 50
    max_turn_bytes: Annotated[
        Bytes, Meta(description="The most bytes of messages that one turn has; a message that is larger goes alone.")
    ] = 262_144
    window_ms: Annotated[
        Milliseconds,
        Meta(description="Instead of waiting for silence, collect for this long from the first message (0 = off)."),
    ] = 0
    activity_ms: Annotated[
        Milliseconds, Meta(description="How much longer to wait for a person who is seen typing or recording.")
    ] = 5_000
    ttl_ms: Annotated[
        Milliseconds, Meta(description="How long a turn is tried before its messages become a dead letter.")
    ] = 3_600_000
    on_busy: Annotated[
        Literal["queue", "interrupt", "steer", "reject"],
        Meta(
            description="What a message does while its conversation is being answered: wait, start the answer anew, be "
            "offered to whoever answers, who may absorb it, or be rejected with a notice."
        ),
    ] = "queue"
    busy_text: Annotated[
        str,
        Meta(
            max_length=LONGEST_NOTICE,
            description="What a person is told, once per turn, when a message is rejected because their last one is "
            "still being answered. A line that begins with a language, as in `@de Einen Moment`, is for those who "
            "speak it. Empty: nothing is said.",
        ),
    ] = "One moment, please: your last message is still being answered. Please write again after that."
    max_interrupts: Annotated[
        Count,
        Meta(
            description="How often messages may interrupt the answer to one turn, or make it stale, before it is sent."
        ),
    ] = 3
    on_stale: Annotated[
        OnStale,
        Meta(
            description="What becomes of an answer if a newer message waits just before its first reply leaves: it is "
            "sent, it is discarded and the newer messages are answered alone, or all of them are answered together."
        ),
    ] = "send"
    max_attempts: Annotated[
        Positive, Meta(description="How many attempts may fail before the messages become a dead letter.")
    ] = 3
    history_keep_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=LONGEST_KEPT_MS,
            description="How long settled turns are kept, with what was said and answered (0 = as `history.keep_ms`).",
        ),
    ] = 0
    text_format: Annotated[
        TextFormat,
        Meta(
            description="How a turn's text looks: lines; with the time since the first message, or with the sender, "
            "before each; or lines, and beside them chat messages as OpenAI's API takes them."
        ),
    ] = "lines"
    priority: Annotated[
        Priority,
        Meta(
            description="Who is answered first when more is due than there are slots for: a higher priority goes "
            "first, and who waited 10 s longer counts as one step higher."
        ),
    ] = 0
    share: Annotated[
        Share,
        Meta(
            description="The tenant's share of the slots when there are too few: one with 200 gets twice as many turns "
            "as one with 100."
        ),
    ] = 100
    tenant_turns: Annotated[
        Count, Meta(description="How many turns of one tenant each process answers at the same time (0 = no limit).")
    ] = 0
    flush_words: Annotated[
        Phrases,
        Meta(description='Words or phrases that end the wait, such as "that\'s all"; "@en" are our own for English.'),
    ] = ()
    hold_words: Annotated[
        Phrases, Meta(description='Words or phrases that lengthen the wait, such as "one moment", or "@en".')
    ] = ()
    stop_words: Annotated[
        Phrases,
        Meta(
            description='Whole messages that drop what waits and cancel the answer under way, such as "stop", or "@en".'
        ),
    ] = ()
    hold_word_ms: Annotated[
        Milliseconds, Meta(description="How long to wait after a hold word; `max_wait_ms` still ends it.")
    ] = 15_000
    cut_text_ms: Annotated[
        Milliseconds,
        Meta(description="How long to wait for the rest of a text that is as long as its platform allows (0 = off)."),
    ] = 5_000
    messages_per_minute: Annotated[
        PerMinute, Meta(description="How many messages a conversation may send each process per minute (0 = no limit).")
    ] = 0
    bytes_per_minute: Annotated[
        PerMinute, Meta(description="How many bytes of messages, as they are stored, it may send (0 = no limit).")
    ] = 0
    tenant_messages_per_minute: Annotated[
        PerMinute,
        Meta(description="How many messages all of a tenant's conversations together may send (0 = no limit)."),
    ] = 0
    tenant_bytes_per_minute: Annotated[
        PerMinute, Meta(description="How many bytes of messages they may send (0 = no limit).")
    ] = 0
    limit_text: Annotated[
        str,
        Meta(
            max_length=LONGEST_NOTICE,
            description="What a person is told, once a minute at most, when a message on a chat platform is rejected "
            "because it is over one of these limits; languages as in `busy_text`. Empty: nothing is said.",
        ),
    ] = "Too many messages at once: your last one will not be answered. Please write again in a minute."

    def __post_init__(self) -> None:
        check_fields(self)
        for name in WORD_LISTS:
            if type(given := getattr(self, name)) is not tuple:
                msgspec.structs.force_setattr(self, name, tuple(given))
        if self.has_words:
            words_in(self.flush_words, self.hold_words, self.stop_words)
        if self.min_messages > self.max_messages:
            raise ValueError("min_messages is above max_messages: lower one or raise the other.")
        for name in ("silence_ms", "window_ms"):
            value, default = getattr(self, name), _DEFAULTS[name]
            # Who sets nothing but a short `max_wait_ms` wants just that: the silence that nobody set is cut to it.
            if value > self.max_wait_ms and value != default:
                raise ValueError(
                    f"{name} ({value}) is above max_wait_ms ({self.max_wait_ms}), which ends every wait: "
                    "lower one or raise the other."
                )

    def of(self, agent: str) -> Self:
        """The same for every agent."""
        return self

    @property
    def has_words(self) -> bool:
        """Whether any flush, hold or stop word is to be looked for."""
        return bool(self.flush_words or self.hold_words or self.stop_words)

    @cached_property
    def words(self) -> Words:
        """Those words, ready to be looked for."""
        return words_in(self.flush_words, self.hold_words, self.stop_words)


WORD_LISTS = ("flush_words", "hold_words", "stop_words")
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Rules)}

OF_TENANTS = frozenset({"share", "tenant_turns", "tenant_messages_per_minute", "tenant_bytes_per_minute"})
"""The rules that are about a tenant as a whole, so that nothing smaller than a tenant can have them."""

PRESETS: dict[str, Rules] = {
    "quick-support": Rules(silence_ms=500, typing_inference_ms=500, max_wait_ms=5_000),
    "complex-inquiry": Rules(silence_ms=2_000, min_messages=2, max_wait_ms=60_000),
    "high-volume": Rules(silence_ms=1_000, max_messages=10, max_wait_ms=10_000),
    "interview": Rules(silence_ms=10_000, typing_inference_ms=5_000),
}
