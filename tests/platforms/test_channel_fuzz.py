"""Ten thousand requests that no platform sends: each is forged, unreadable or events, and no forgery is believed."""

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.platforms import test_channel_contract as ours
from turntake.platforms.channel import Request
from turntake.testing import hostile
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import Recording

SUITES: tuple[type[ChannelContract], ...] = (
    ours.TestDiscord,
    ours.TestGeneric,
    ours.TestGenericWithASharedSecret,
    ours.TestInstagram,
    ours.TestMessenger,
    ours.TestSlack,
    ours.TestTelegram,
    ours.TestTwilio,
    ours.TestWhatsApp,
)
EACH = 1_250
AT_ONCE = 4


def assault(suite: type[ChannelContract], recording: Recording) -> st.SearchStrategy[list[Request]]:
    """Requests in every mixture of some headers with some bodies, and the recorded one mutilated."""
    request = recording.request
    true = [other.request.headers for other in suite.recordings]
    names = sorted({*suite.proof, *(name for headers in true for name in headers)})
    return st.builds(
        lambda headers, bodies, methods, mutilated: [
            *(replace(request, method=methods, headers=one, body=other) for one, other in product(headers, bodies)),
            *mutilated,
        ],
        st.lists(hostile.headers(names, true), min_size=AT_ONCE, max_size=AT_ONCE),
        st.lists(hostile.bodies, min_size=AT_ONCE, max_size=AT_ONCE),
        st.sampled_from(["POST", "POST", "GET", "PUT"]),
        st.tuples(hostile.cut(request), hostile.bent(request), hostile.bent(request), hostile.bent(request)),
    )


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # else it hides what failed
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__.removeprefix("Test"))
def test_hostile_requests_do_no_harm(suite: type[ChannelContract]) -> None:
    """Nothing but Forged and Unreadable is raised, what is read can be stored, and only what was signed is believed."""
    contract = suite()
    count = 0

    @settings(max_examples=EACH // 18, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(list(suite.recordings)).flatmap(lambda each: st.tuples(st.just(each), assault(suite, each))))
    def attack(chosen: tuple[Recording, list[Request]]) -> None:
        nonlocal count
        recording, requests = chosen
        for request in requests:
            contract.check(recording, request)
        count += len(requests)

    attack()
    assert count >= EACH
    assert EACH * len(SUITES) > 10_000
