"""The page at `/`, in a real browser.

No test here is async: while it is open, the browser occupies this thread's event loop.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from harness.servers import Echo, Served, serving, talking
from turntake import Rules, Turn, TurnTake
from turntake.http.pages import MEDIA_TYPES, PAGES

FLAGS = [
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
QUICK = Rules(silence_ms=300, typing_inference_ms=300)
MARKUP = "<img src=x onerror=alert(1)><b>bold</b>"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving(TurnTake("memory://", rules=QUICK, agent=Echo())) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        assert not os.environ.get("CI"), "CI needs a browser; `make browser` installs one"
        pytest.skip("no chromium found")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which neither script nor policy may complain."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
    yield page
    context.close()
    assert complaints == []


def command(text: str) -> str:
    found = re.search(r'<code id="command">(.*?)</code>', text, re.DOTALL)
    assert found is not None
    return unescape(found[1])


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_the_page_welcomes_and_can_be_tried(server: Served, shell: str) -> None:
    """The curl line works as it stands, as often as one likes: three fragments, one answer. Also in a plain shell."""
    said = command(httpx2.get(server.url).text)
    for _ in range(2):
        done = subprocess.run([shell, "-c", said], capture_output=True, text=True, check=True, timeout=20)
        assert done.stdout.count('"buffered"') == 3


def test_live_events_are_shown_as_they_happen(server: Served, page: Page) -> None:
    """Buffered, due, claimed, answered, under the conversation's name."""
    page.goto(server.url)
    expect(page.locator("#connection")).to_have_text("watching")
    body = [{"conversation": "zoë", "id": str(n), "text": f"piece {n}"} for n in (1, 2)]
    assert httpx2.post(f"{server.url}/v1/messages", json=body).status_code == 202
    card = page.locator("article", has_text="zoë")
    expect(card.locator(".what.buffered").last).to_have_text("buffered 2 messages, due in 0.3 s: silence")
    expect(card.locator(".what.due")).to_have_text("due by: silence")
    expect(card.locator(".what.claimed")).to_contain_text("claimed 2 messages after")
    expect(card.locator(".what.answered .reply")).to_have_text("piece 1\npiece 2")
    expect(card.locator(".standing")).to_have_text("answered")
    expect(page.locator("#empty")).to_be_hidden()


def test_the_page_can_send_by_itself(server: Served, page: Page) -> None:
    """For those without a terminal at hand."""
    page.goto(server.url)
    expect(page.locator("#connection")).to_have_text("watching")
    page.get_by_role("button", name="Or send them from here").click()
    expect(page.locator("#said")).to_have_text("Sent.", timeout=20_000)
    # On a slow machine the pauses between them are long enough for more than one turn, or the pieces come together.
    expect(page.locator(".reply", has_text="Hi!").first).to_be_visible()


def test_what_people_write_is_text(server: Served, page: Page) -> None:
    """Markup in names and replies is shown, never run."""
    page.goto(server.url)
    expect(page.locator("#connection")).to_have_text("watching")
    httpx2.post(f"{server.url}/v1/messages", json={"conversation": MARKUP, "id": "1", "text": MARKUP})
    card = page.locator("article", has_text="onerror")
    expect(card.locator("h3")).to_have_text(MARKUP)
    expect(card.locator(".reply")).to_have_text(MARKUP)
    assert card.locator("img, .reply b").count() == 0


def test_copying_takes_the_command(server: Served, page: Page) -> None:
    """To the clipboard, or at least selected."""
    page.goto(server.url)
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#said")).to_have_text(re.compile("Copied|Selected"))


def test_nothing_overflows_a_phone(server: Served, page: Page) -> None:
    """The command scrolls inside its box."""
    page.goto(server.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser) -> None:
    """It travels in a header, never in an address."""
    turns = TurnTake("memory://", rules=QUICK, agent=Echo())
    with talking(turns, api_keys=["secret"]) as client:
        assert 'curl -s -H "Authorization: Bearer YOUR_KEY" http' in command(client.get("/").text)
        context = browser.new_context()
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(str(client.base_url))
        for key, outcome in (("wrong", "waiting for a key"), ("secret", "watching")):
            page.get_by_label("This turntake asks for an API key").fill(key)
            page.get_by_role("button", name="Watch").click()
            expect(page.locator("#connection")).to_have_text(outcome)
            expect(page.locator("#key-form")).to_be_visible(visible=outcome != "watching")
        page.reload()
        expect(page.locator("#connection")).to_have_text("watching")
        assert not any("secret" in url for url in asked)
        context.close()


def test_its_files_are_served_under_a_strict_policy() -> None:
    """No inline script, no inline style, no other origin, no frame around it."""
    with talking(TurnTake("memory://", role="accept")) as client:
        for path in ("/", *(f"/pages/{name}" for name in MEDIA_TYPES)):
            response = client.get(path)
            assert response.status_code == 200
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
    html = (PAGES / "welcome.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|https?://(?!127\.0\.0\.1)", html)


def test_an_address_is_written_as_text() -> None:
    """A Host header is whatever a client says."""
    turns = TurnTake("memory://", role="accept")
    with talking(turns, api_keys=["secret"]) as client:
        response = client.get("/", headers={"Host": "<script>alert(1)</script>"})
        assert "<script>alert" not in response.text


def test_a_wrong_key_is_said_to_be_wrong(browser: Browser) -> None:
    """And the word goes away with the next try."""
    with serving(TurnTake("memory://", rules=QUICK, agent=Echo()), api_keys=["a-key-that-is-long-enough-1"]) as server:
        page = browser.new_page()
        page.goto(server.url)
        expect(page.locator("#key-form")).to_be_visible()
        expect(page.locator("#key-wrong")).to_be_hidden()
        page.get_by_label("This turntake asks for an API key").fill("wrong")
        page.get_by_role("button", name="Watch").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this key")
        page.get_by_label("This turntake asks for an API key").fill("a-key-that-is-long-enough-1")
        page.get_by_role("button", name="Watch").click()
        expect(page.locator("#connection")).to_have_text("watching")
        expect(page.locator("#key-wrong")).to_be_hidden()
        page.close()


def test_a_failure_shows_its_words_and_the_letter(page: Page) -> None:
    """As text, whatever an exception says."""

    async def answer(turn: Turn) -> str:
        raise RuntimeError(MARKUP)

    rules = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1)
    with serving(TurnTake("memory://", rules=rules, agent=answer)) as server:
        page.goto(server.url)
        expect(page.locator("#connection")).to_have_text("watching")
        httpx2.post(f"{server.url}/v1/messages", json={"conversation": "eve", "id": "1", "text": "hi"})
        line = page.locator(".what.dead-lettered")
        expect(line.locator(".error")).to_have_text(f"RuntimeError: {MARKUP}")
        letter = line.get_by_role("link", name="the dead letter").get_attribute("href")
        assert letter is not None
        assert httpx2.get(f"{server.url}/{letter}").json()["messages"][0]["text"] == "hi"
