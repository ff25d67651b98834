"""The service against its own description: requests made from /openapi.json, good and bad, and no answer surprises."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from harness.platforms.word_channel import WordChannel
from harness.servers import OURS, Later, serving
from turntake import Rules, TurnTake
from turntake.http.endpoint import Endpoint
from turntake.http.routes import ENDPOINTS

PATIENT = Rules(silence_ms=60_000, typing_inference_ms=60_000, max_wait_ms=600_000)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


# The stream of events never ends, so nothing that waits for its end may ask for it.
ASKED = [endpoint for endpoint in ENDPOINTS if endpoint.is_described and endpoint.path != "/v1/events"]
# Where there is no body and no query, nothing can be wrong.
CASES = [
    (endpoint, mode)
    for endpoint in ASKED
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or endpoint.body is not None or endpoint.query is not None
]
EACH = 60


@pytest.fixture(scope="module")
def described() -> Iterator[schemathesis.BaseSchema]:
    turns = TurnTake("memory://", rules=PATIENT, agent=Later())
    with serving(turns, channels={("knock", ""): WordChannel({})}) as server:
        yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize(
    ("endpoint", "mode"), CASES, ids=[f"{endpoint.method} {endpoint.path} {mode.value}" for endpoint, mode in CASES]
)
def test_every_answer_is_one_that_is_described(
    described: schemathesis.BaseSchema, endpoint: Endpoint, mode: GenerationMode
) -> None:
    asked = 0

    @settings(max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=described[endpoint.path][endpoint.method].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        # As the holder of the made key: the requests make keys too, and from then on nobody is served without one.
        case.call_and_validate(checks=CHECKS, headers=OURS)

    ask()
    assert asked > 0
