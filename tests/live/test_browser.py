"""The pages in headless Chromium, at desktop and phone width: submit, why, drain, by mouse and by keyboard."""

import re
import shutil

import pytest

from live.process import Process
from live.waiting import wait_for
from noonward.live.client import Client

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here (Debian: chromium)"),
]
expect = sync_api.expect
PAGES = ("/", "/jobs", "/plan", "/signals", "/savings", "/decisions", "/submit", "/sites/warsaw", "/login")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with Process("-m", "noonward.cli.main", "serve", "--demo", "--folder", str(folder), "--port", "0") as service:
        yield service.address
        service.end()


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(request, chromium, address):
    """A page that notes what it complains about and where it sends requests."""
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, base_url=address)
    page = context.new_page()
    page.complaints, page.asked = [], []
    page.on("console", lambda said: page.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda sent: page.asked.append(sent.url))
    page.on("dialog", lambda dialog: dialog.accept())
    yield page
    assert page.complaints == []
    assert {url for url in page.asked if not url.startswith(address)} == set()
    context.close()


def test_every_page_fits_the_width_and_loads_nothing_from_elsewhere(page, address):
    with Client(address) as client:
        wait_for(lambda: client.jobs(), "the first job of the demo")
    for path in PAGES:
        page.goto(path)
        page.wait_for_selector("h1", state="attached")
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"), f"{path} is wider than the screen"
        assert page.evaluate("typeof uPlot === 'function' && typeof htmx === 'object'")
    page.goto("/")
    expect(page.locator("figure.map > svg:visible")).to_have_count(1)  # the one that suits the width
    expect(page.locator("figure.map > svg:visible circle")).to_have_count(3)
    drawn = page.locator("figure.map > svg:visible").bounding_box()["width"]
    assert drawn > 0.9 * page.locator("main").bounding_box()["width"] - 40
    page.goto("/signals")
    page.wait_for_selector(".plot canvas")
    assert page.locator(".plot canvas").count() == 6


def test_a_job_is_submitted_explained_steered_and_cancelled(page):
    page.goto("/submit")
    page.fill("#name", "by hand")
    page.fill("#command", "true")
    page.fill("#work", "3600")
    page.select_option("#origin", "warsaw")
    page.check("input[name=held]")
    page.click("main button")
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    assert "is submitted" in page.inner_text(".said")
    assert "by hand" in page.inner_text("h1")
    expect(page.locator("#live .answer")).to_contain_text("its release: it is held", timeout=30_000)
    page.select_option("#pin", "singapore")
    page.click("text=Apply")
    expect(page.locator("#live dl")).to_contain_text("pinned to singapore")
    expect(page.locator("#live tbody tr")).to_have_count(3, timeout=30_000)
    expect(page.locator("#live tbody")).to_contain_text("the job is pinned to another site", timeout=30_000)
    page.click("text=Cancel the job")
    expect(page.locator("#live .answer")).to_contain_text("cancelled")


def test_a_site_is_drained_by_keyboard_alone(page):
    page.goto("/")
    before = page.inner_text("#status time")
    page.focus("#drain-warsaw")
    expect(page.locator("#status time")).not_to_have_text(before, timeout=30_000)
    assert page.evaluate("document.activeElement.id") == "drain-warsaw"  # the page's own refresh keeps the focus
    page.keyboard.press("Enter")
    page.wait_for_selector("#open-warsaw")
    assert "warsaw is drained" in page.inner_text(".said")
    assert "warsaw is drained" in page.inner_text(".notes:not([hidden])")
    page.focus("#open-warsaw")
    page.keyboard.press("Enter")
    page.wait_for_selector("#drain-warsaw")
    page.goto("/jobs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
