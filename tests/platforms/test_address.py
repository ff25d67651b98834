"""The ids that turntake composes: what is written when a message comes in is read the same when its answer leaves."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turntake.accept.intake import key_of
from turntake.platforms import address
from turntake.platforms.address import AccountAddress, ChatAddress, Interaction, ReplyAddress, TopicAddress
from turntake.platforms.channel import ChatEvent
from turntake.rules.key import ConversationKey
from turntake.rules.transitions import turn_id

# Of few pieces, all of which mean something: so every case of an escape is met.
PIECES = ("a", "@", "/", "%", "%40", "%2F", "%25", "%2540", "default")
ids = st.lists(st.sampled_from(PIECES), max_size=4).map("".join) | st.text(max_size=12)
account_names = st.from_regex(r"([a-z0-9][a-z0-9_-]{0,9})?", fullmatch=True)


@given(account_names, ids)
def test_an_account_is_read_as_it_was_written(name: str, own_id: str) -> None:
    assume(own_id != address.UNNAMED)
    assert address.read_account(address.write_account(name, own_id)) == AccountAddress(name, own_id)


@given(ids, ids)
def test_a_topic_is_read_as_it_was_written(thread: str, person: str) -> None:
    assert address.read_topic(address.write_topic(thread, person)) == TopicAddress(thread, person)


@given(ids, ids)
def test_a_chat_is_read_as_it_was_written(connection: str, chat: str) -> None:
    assume(chat)
    assert address.read_chat(address.write_chat(connection, chat)) == ChatAddress(connection, chat)


@given(st.text(min_size=1), st.text(min_size=1), st.integers(), st.booleans())
def test_an_interaction_is_read_as_it_was_written(token: str, application_id: str, kind: int, is_sealed: bool) -> None:
    interaction = Interaction(token, application_id, kind, is_sealed)
    assert address.read_interaction({"command": "ask", **address.write_interaction(interaction)}) == interaction


@given(ids)
def test_a_group_is_read_as_it_was_written(group_id: str) -> None:
    assert address.read_group(address.write_group(group_id)) == group_id


@pytest.mark.parametrize(
    ("written", "spelling"),
    [
        (address.write_account("", ""), "default"),
        (address.write_account("", "106540352242922"), "106540352242922"),
        (address.write_account("sales", "106540352242922"), "sales/106540352242922"),
        (address.write_account("sales", ""), "sales/default"),
        (address.write_account("", "a/b"), "/a/b"),
        (address.write_topic("1771442483.260129", ""), "1771442483.260129"),
        (address.write_topic("1771442483.260129", "U0ADA"), "1771442483.260129@U0ADA"),
        (address.write_topic("", "ada@example.org"), "@ada@example.org"),
        (address.write_topic("50% off", "ada"), "50% off@ada"),
        (address.write_topic("", ""), ""),
        (address.write_chat("", "-1001234567890"), "-1001234567890"),
        (address.write_chat("biz_7", "4711"), "biz_7/4711"),
        (address.write_direct_thread("4711"), "direct-4711"),
        (address.write_interaction(Interaction("t", "1", 2)), {
            "interaction": {"sealed_token": "t", "application_id": "1", "type": 2}
        }),
        (address.write_interaction(Interaction("t", "1", 2, is_sealed=False)), {
            "interaction": {"token": "t", "application_id": "1", "type": 2}
        }),
        (address.write_group("G-5"), {"groupId": "G-5"}),
        (address.write_group(""), {}),
    ],
)  # fmt: skip
def test_spellings_stay_as_running_installations_have_them(written: object, spelling: object) -> None:
    """Keys and messages with these are in stores."""
    assert written == spelling


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"interaction": None},
        {"interaction": {"token": "t"}},
        {"interaction": {"token": "", "application_id": "1", "type": 2}},
        {"interaction": {"token": "t", "application_id": 1, "type": 2}},
    ],
)
def test_half_an_interaction_cannot_be_answered(metadata: dict[str, object]) -> None:
    assert address.read_interaction(metadata) is None


def test_an_interaction_of_a_strange_type_is_answered_like_a_button() -> None:
    metadata = {"interaction": {"token": "t", "application_id": "1", "type": ["odd"]}}
    assert address.read_interaction(metadata) == Interaction("t", "1", 0, is_sealed=False)


@pytest.mark.parametrize("thread", ["", "5", "1771442483.260129", "direct", "-direct-5"])
def test_only_a_direct_thread_is_read_as_one(thread: str) -> None:
    assert address.read_direct_thread(thread) == ""
    assert address.read_direct_thread(address.write_direct_thread("5")) == "5"


def said_in(thread: str, sender: str) -> ChatEvent:
    return ChatEvent(kind="message", conversation="room", sender=sender, thread=thread, is_group=True, id="1")


def test_people_whose_ids_look_like_threads_have_a_buffer_each() -> None:
    """Thread `t` and sender `a@b`, thread `t@a` and sender `b`: written one after the other, both read `t@a@b`."""
    one, other = (key_of("generic", "", said_in(*pair)) for pair in (("t", "a@b"), ("t@a", "b")))
    assert one != other
    assert address.read_topic(other.topic) == TopicAddress("t@a", "b")


@given(st.integers(1, 10**9), st.integers(0, 999_999))
def test_a_reply_is_read_as_it_was_written(head: int, place: int) -> None:
    """What platforms repeat in their reports names a turn of ours, and a place in its answer."""
    turn = turn_id(ConversationKey("ann"), head, head)
    assert address.read_reply(address.write_reply(turn, place)) == ReplyAddress(turn, place)


@pytest.mark.parametrize(
    "given", ["", "-0", "turn_-0", "turn_0a", "turn_0a-", "turn_0a-x", "turn_0a-1234567", "turn_é-0"]
)
def test_what_somebody_else_gave_to_the_platform_is_no_reply_of_ours(given: str) -> None:
    assert address.read_reply(given) is None
