"""What every channel must do. Subclass `ChannelContract`, and say which channel and where its recordings are.

Needs pytest and Hypothesis. Failures say more after this in a conftest.py:

    pytest.register_assert_rewrite("turntake.testing.channel_contract")

The tests:

    class TestMyChannel(ChannelContract):
        channel = MyChannel
        recordings = recordings_in(Path(__file__).parent / "recordings")
        proof = ("x-my-signature",)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.accept.intake import CHANGES, key_of, message_of
from turntake.errors import ConfigurationError, Forged, Unreadable
from turntake.platforms.channel import SAID, Channel, ChatEvent, Request
from turntake.platforms.replies import ApiResponse
from turntake.testing import hostile
from turntake.testing.recording import SOME_TIME, Recording, differences

MOST_CHANGES = 200  # so that a long recording takes no minutes, and every part of it is met
UNSET = ("", " ", ",", " , ")
hard = settings(
    max_examples=100,
    deadline=None,
    # One test method, run by several subclasses, each with recordings of its own.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow, HealthCheck.data_too_large],
)


class ChannelContract:
    """One class to subclass."""

    channel: ClassVar[type[Channel]]
    recordings: ClassVar[Sequence[Recording]] = ()

    proof: ClassVar[Sequence[str]] = ()
    """The headers that show who sent the request, in lower case."""

    covers_body: ClassVar[bool] = True
    """Whether the proof is one of the body too, and not of the sender alone."""

    signs_with: ClassVar[Mapping[str, str]] = {}
    """The options with which `sample` can sign, if not those of the first recording."""

    sample_id: ClassVar[str] = "1001"
    sample_sender: ClassVar[str] = "4915100000001"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "recording" in metafunc.fixturenames:
            metafunc.parametrize("recording", self.recordings, ids=lambda recording: recording.name)

    def test_there_are_recordings(self) -> None:
        """Without them, nothing below would be checked."""
        assert any(recording.events for recording in self.recordings)
        assert self.proof

    def test_a_recording_is_believed_and_means_what_it_says(self, recording: Recording) -> None:
        """It verifies at its time, gives its events in order, and is answered."""
        channel = self.channel(recording.options)
        channel.verify(recording.request, recording.now)
        delivery = channel.read(recording.request)
        wrong = differences(delivery.events, recording.events)
        assert not wrong, "; ".join(wrong)
        assert 200 <= delivery.answer.status < 300

    def test_a_changed_byte_of_the_body_is_forged(self) -> None:
        """Whichever byte it is; in a long body, of every so many one."""
        covered = [each for each in self.recordings if self.covers_body and each.request.method != "GET"]
        for recording in covered:
            request = recording.request
            for body in (*_bytes_changed(request.body), request.body + b" "):
                assert self.is_forged(recording, replace(request, body=body)), (recording.name, body)

    def test_a_changed_character_of_the_proof_is_forged(self, recording: Recording) -> None:
        """In every header that is part of it; and so is a missing header."""
        request = recording.request
        for name in set(self.proof) & set(request.headers):
            others = {each: value for each, value in request.headers.items() if each != name}
            assert self.is_forged(recording, replace(request, headers=others)), name
            for value in _characters_changed(request.headers[name]):
                assert self.is_forged(recording, replace(request, headers={**others, name: value})), (name, value)

    @pytest.mark.parametrize("unset", UNSET)
    def test_an_unset_secret_believes_nobody(self, recording: Recording, unset: str) -> None:
        """Not the platform itself, and least of all somebody who signs with nothing."""
        needed = {option.name: unset for option in self.channel.options if option.use == "verify"}
        bare = self.channel({**recording.options, **needed})
        unsigned = replace(recording.request, headers=dict.fromkeys(self.proof, ""))
        for request in (recording.request, unsigned, *self.samples_of(bare, recording)):
            with pytest.raises(Forged):
                bare.verify(request, recording.now)

    def test_a_replay_has_the_same_ids(self, recording: Recording) -> None:
        """So a redelivery is known, also by a process that was started since."""
        once, again = (self.channel(recording.options).read(recording.request).events for _ in range(2))
        assert [event.message_id for event in once] == [event.message_id for event in again]
        assert all(event.message_id for event in once)

    def test_our_own_messages_are_not_buffered(self) -> None:
        """Else the bot would talk to itself."""
        for recording in filter(lambda each: each.own, self.recordings):
            events = self.channel(recording.options).read(recording.request).events
            assert [event for event in events if event.kind in SAID | CHANGES] == [], recording.name

    def test_a_sample_is_believed_and_says_what_was_asked_for(self) -> None:
        """It is how `turntake doctor` and an operator try the way in."""
        channel = self.channel(self.signs_with or self.recordings[0].options)
        url = self.recordings[0].request.url
        sample = channel.sample("Grüße 👋", sender=self.sample_sender, id=self.sample_id, url=url, now=SOME_TIME)
        channel.verify(sample, SOME_TIME)
        (event,) = channel.read(sample).events
        assert (event.kind, event.text) == ("message", "Grüße 👋")
        assert (event.sender, event.id) == (self.sample_sender, self.sample_id)

    @hard
    @given(status=st.integers(100, 599), body=hostile.bodies)
    def test_whoami_is_a_call_and_reads_any_response(self, status: int, body: bytes) -> None:
        """What `turntake doctor` asks, if anything: options that exist, and a sentence for whatever comes back."""
        channel = self.channel(self.signs_with or self.recordings[0].options)
        if (question := channel.whoami()) is not None:
            assert set(question.options) <= {option.name for option in self.channel.options}
            assert question.call.url.startswith(("https://", "http://"))
            verdict = question.read(ApiResponse(status, {}, body), "A_VARIABLE")
            assert verdict.text
            assert verdict.level != "ok" or status < 300
        if (check := channel.webhook_check("https://bot.example/webhooks", True)) is not None:
            assert check.read(ApiResponse(status, {}, body)).text

    @hard
    @given(data=st.data())
    def test_whatever_comes_is_forged_or_unreadable_or_events(self, data: st.DataObject) -> None:
        """Nothing else is ever raised, and nothing is believed that nobody signed."""
        recording = data.draw(st.sampled_from(list(self.recordings)))
        request = data.draw(hostile.requests(self.recordings, self.proof))
        self.check(recording, request)

    @hard
    @given(data=st.data())
    def test_a_mutilated_webhook_is_forged_or_unreadable_or_events(self, data: st.DataObject) -> None:
        """Cut anywhere, or with any value in any place, as if the platform had signed that."""
        recording = data.draw(st.sampled_from(list(self.recordings)))
        change = data.draw(st.sampled_from([hostile.cut, hostile.bent]))
        self.check(recording, data.draw(change(recording.request)))

    def samples_of(self, bare: Channel, recording: Recording) -> Iterator[Request]:
        """What a channel without a secret signs, if it signs at all."""
        with suppress(ConfigurationError):
            url = recording.request.url
            yield bare.sample("hi", sender=self.sample_sender, id=self.sample_id, url=url, now=recording.now)

    def check(self, recording: Recording, request: Request) -> None:
        """Fails unless the request is refused, or was signed; and unless all that is read in it can be kept."""
        channel = self.channel(recording.options)
        is_forged = self.is_forged(recording, request)
        try:
            delivery = channel.read(request)
        except Unreadable:
            assert is_forged or self.was_signed(channel, request, ()), "it was believed, and nobody signed it"
            return
        for event in delivery.events:
            _check_storable(event)
        assert is_forged or self.was_signed(channel, request, delivery.events), "it was believed, and nobody signed it"
        assert is_forged or delivery.answer.status < 500

    def was_signed(self, channel: Channel, request: Request, events: Sequence[ChatEvent]) -> bool:
        """Whether a recording proves the request. A form may be written in several ways, and say the same."""
        for each in self.recordings:
            signed = each.request
            proof = {name: signed.headers[name] for name in self.proof if name in signed.headers}
            is_called_alike = request.method == signed.method == "GET" and request.url == signed.url
            if proof.items() <= request.headers.items() and (proof or is_called_alike):
                is_covered = is_called_alike or request.body == signed.body or not self.covers_body
                if is_covered or (events and events == channel.read(signed).events):
                    return True
        return False

    def is_forged(self, recording: Recording, request: Request) -> bool:
        """Whether the channel, set up as recorded, refuses the request, with a status that says so."""
        try:
            self.channel(recording.options).verify(request, recording.now)
        except Forged as refusal:
            return refusal.status in (401, 403)
        return False


def _check_storable(event: ChatEvent) -> None:
    """A store must be able to take what intake makes of the event."""
    if event.kind in SAID | CHANGES:
        msgspec.msgpack.encode(message_of(event))
    assert event.message_id
    with suppress(ValueError):  # intake says so in the log, and goes on
        key_of("channel", "", event)


def _bytes_changed(body: bytes) -> Iterator[bytes]:
    step = max(1, len(body) // MOST_CHANGES)
    for at in range(0, len(body), step):
        yield body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def _characters_changed(value: str) -> Iterator[str]:
    for at, character in enumerate(value):
        yield value[:at] + ("b" if character == "a" else "a") + value[at + 1 :]
