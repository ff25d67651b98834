"""The echo: what a newcomer sees first."""

from harness.conversation import a_turn
from turntake import Attachment, Message
from turntake.deliver.echo import echo

AT = 1_700_000_000_000


async def test_it_says_what_came_how_long_it_waited_and_why() -> None:
    said = [Message(str(n), text, seq=n, received_at=AT + 200 * n) for n, text in enumerate(["Hey", "you", "there?"])]
    assert await echo(a_turn(*said)) == "You sent 3 messages (waited 1.4 s, then: silence):\nHey\nyou\nthere?"


async def test_one_message_is_one_message_and_pictures_are_named() -> None:
    photo = Message("1", "look", attachments=(Attachment("image"), Attachment("location")), received_at=AT)
    assert await echo(a_turn(photo)) == ("You sent 1 message (waited 1.0 s, then: silence):\nlook [image] [location]")
