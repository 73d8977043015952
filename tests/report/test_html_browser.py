"""The page in a browser: what it looks like, what its script does, and that nothing else runs."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.report.html.findings import SHOWN
from pytest_dispatchguard.report.html.page import Known, page
from pytest_dispatchguard.report.traces import render
from pytest_dispatchguard.report.traces.options import Options as TraceOptions
from pytest_dispatchguard.traces.comparing import compared

from .traces.conftest import told, trace

playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

pytestmark = pytest.mark.slow

PHONE, DESK = (390, 844), (1280, 900)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Playwright's own Chromium, or the one of the system."""
    with playwright.sync_playwright() as driver:
        own = Path(driver.chromium.executable_path)
        found = own if own.exists() else next(filter(None, map(shutil.which, NAMES)), None)
        if found is None:
            pytest.skip("there is no Chromium here: run `playwright install chromium`")
        try:
            started = driver.chromium.launch(
                executable_path=str(found), args=["--no-sandbox"], timeout=120_000
            )
        except playwright.Error as error:
            pytest.skip(f"{found} does not start: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page; in the end it must have complained of nothing, and asked for nothing but itself."""
    contexts, said, asked = [], [], []
    files: dict[int, Path] = {}

    def show(known: Known | str, size: tuple[int, int] = DESK, **settings: Any) -> Any:
        if id(known) not in files:
            files[id(known)] = tmp_path / f"page{len(files)}.html"
            text = known if isinstance(known, str) else page(known)
            files[id(known)].write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce", **settings
        )
        contexts.append(context)
        context.set_default_timeout(60_000)
        opened = context.new_page()
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(files[id(known)].as_uri())
        return opened

    yield show
    for context in contexts:
        context.close()
    assert said == []
    assert all(address.startswith("file:") and ".html" in address for address in asked)
    assert len(asked) == len(contexts)


def until(opened: Any, holds: str) -> None:
    """Waits for an expression to hold; the page's policy lets nothing inside it do so."""
    end = time.monotonic() + 60
    while not opened.evaluate(holds):
        assert time.monotonic() < end, holds
        time.sleep(0.02)


@pytest.mark.parametrize("number", [5, 5000])
def test_it_fits_in_both_themes_and_on_a_phone(
    show: Open, known_of: Callable[..., Known], tmp_path: Path, number: int
) -> None:
    known = known_of(number)
    looks = [("light", PHONE), ("dark", DESK)]
    if number < 100:
        looks += [("light", DESK), ("dark", PHONE)]
    for theme, size in looks:
        opened = show(known, size, color_scheme=theme)
        file = tmp_path / f"{number}-{theme}-{size[0]}.png"
        assert len(opened.screenshot(path=file)) > 20_000  # an empty one has a quarter
        assert opened.evaluate("document.documentElement.scrollWidth") <= size[0]
        opened.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert opened.evaluate("document.documentElement.scrollWidth") <= size[0]
        ground = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[theme]


@pytest.mark.parametrize("compares", [False, True])
def test_a_page_of_traces_fits_too(show: Open, tmp_path: Path, compares: bool) -> None:
    made = trace(path=f"{'long/' * 30}trace.json", waits=trace().waits * 3)
    traces = [told(made), told(made)]
    changes = compared(made, trace(waits=())) if compares else None
    text = render(traces, changes, "html", TraceOptions(root="/home/me"))
    for theme, size in ("light", PHONE), ("dark", DESK):
        opened = show(text, size, color_scheme=theme)
        assert len(opened.screenshot(path=tmp_path / f"{theme}.png")) > 20_000
        assert opened.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert "DG402" in opened.locator("#waits").inner_text()
        drawn = opened.locator("#device svg")
        assert drawn.count() == (2 if compares else 1)
        assert drawn.first.bounding_box()["width"] > size[0] / 2


def test_text_that_would_break_a_page_does_nothing(
    show: Open, known_of: Callable[..., Known]
) -> None:
    opened = show(known_of(SHOWN + 50, ugly=True))
    more = "document.getElementById('more')"
    until(opened, f"({more}.scrollIntoView(), {more}.parentElement.hidden)")
    assert opened.locator("#rows li").count() == SHOWN + 50
    assert opened.locator("img, iframe").count() == 0
    opened.locator("#text").fill("<IMG src=x onerror")
    until(opened, "document.querySelectorAll('#rows li').length < 100")
    assert opened.locator("#rows li").count() > 10
    assert "onerror=alert(1)" in opened.locator("#rows li").first.inner_text()


def test_rows_are_narrowed_down_and_put_in_order(
    show: Open, known_of: Callable[..., Known]
) -> None:
    known = known_of(500)
    opened = show(known)
    assert known.report is not None
    unsure = [
        f for f in known.report.findings if f.certainty == "maybe" and f.fix and f.code == "DG303"
    ]
    rows, told = opened.locator("#rows li"), opened.locator("#told")
    assert told.inner_text() == f"500 findings, the first {SHOWN} shown"

    def wait_for(words: str) -> None:
        until(
            opened, f"document.getElementById('told').textContent.startsWith({json.dumps(words)})"
        )

    opened.locator("#text").fill("module_7.py MASK")
    wait_for("10 of 500 findings")
    assert opened.locator("#rows h3").all_inner_texts() == ["src/package/module_7.py"]
    opened.locator("#wait").check()
    wait_for("3 of 500 findings")
    assert {"DG401" in words for words in rows.all_inner_texts()} == {True}
    opened.locator("#text").fill("no such thing")
    wait_for("0 of 500 findings")
    opened.locator("#text").fill("")
    opened.locator("#wait").uncheck()
    opened.locator("#code").select_option("DG303")
    wait_for("333 of 500 findings")
    opened.locator("#certainty").select_option("maybe")
    opened.locator("#fix").check()
    wait_for(f"{len(unsure)} of 500 findings")
    assert rows.count() == len(unsure)
    opened.locator("#order").select_option("cost")
    until(opened, "!document.querySelector('#rows h3')")
    costs = [float(words.split("≈ ")[1].split(" ")[0]) for words in rows.all_inner_texts()]
    loops = opened.evaluate(
        "[...document.querySelectorAll('#rows li')].map(row => row.textContent.includes('in a loop'))"
    )
    ranks = [cost * (10 if loop else 1) for cost, loop in zip(costs, loops, strict=True)]
    assert all(a >= b * 0.9 for a, b in pairwise(ranks))
    opened.locator("#file").select_option("src/package/module_9.py")
    wait_for(f"{sum(f.path.endswith('module_9.py') for f in unsure)} of 500 findings")


def test_rows_beyond_the_first_are_shown_when_they_are_asked_for(
    show: Open, known_of: Callable[..., Known]
) -> None:
    opened = show(known_of(500))
    assert opened.locator("#rows li").count() == SHOWN
    opened.locator("#more").scroll_into_view_if_needed()
    until(opened, f"document.querySelectorAll('#rows li').length > {SHOWN}")
    ids = opened.locator("#rows li").evaluate_all("rows => rows.map(row => row.id)")
    assert ids == [f"f{n}" for n in range(len(ids))]
    # A file whose rows began before goes on where it stood.
    heads = opened.locator("#rows h3").all_inner_texts()
    assert len(heads) == len(set(heads))


def test_keys_lead_through_it(show: Open, known_of: Callable[..., Known]) -> None:
    opened = show(known_of(500))

    def focused() -> str:
        found: str = opened.evaluate(
            "(document.activeElement.closest('li') ?? document.activeElement).id"
        )
        return found

    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    opened.keyboard.press("/")
    assert focused() == "text"
    opened.keyboard.type("j/k")
    assert opened.locator("#text").input_value() == "j/k"
    # What was typed is looked for a moment later; keys do not find the rows of before.
    opened.locator("#text").fill("")
    opened.keyboard.press("Escape")
    for key, there in (
        ("j", "f0"),
        ("j", "f1"),
        ("ArrowDown", "f2"),
        ("k", "f1"),
        ("ArrowUp", "f0"),
    ):
        opened.keyboard.press(key)
        assert focused() == there
    assert not opened.locator("#f0 details").evaluate("row => row.open")
    opened.keyboard.press("Enter")
    assert opened.locator("#f0 details").evaluate("row => row.open")
    # Beyond the rows that are shown, more are.
    opened.locator(f"#f{SHOWN - 2} summary").focus()
    for _ in range(2):
        opened.keyboard.press("j")
    assert focused() == f"f{SHOWN}"
    opened.locator("#keys").uncheck()
    opened.keyboard.press("/")
    assert focused() == "keys"


def test_a_row_keeps_the_focus_while_rows_are_narrowed_down(
    show: Open, known_of: Callable[..., Known]
) -> None:
    opened = show(known_of(500))
    path = opened.locator("#rows h3").first.inner_text()
    summary = "document.querySelector('#f0 summary')"
    # As quick as nobody is: the rows are narrowed down when the focus is among them.
    opened.evaluate(
        "path => { const text = document.getElementById('text'); text.value = path;"
        f" text.dispatchEvent(new Event('input', {{ bubbles: true }})); {summary}.focus(); }}",
        path,
    )
    until(opened, "document.getElementById('told').textContent.includes(' of 500')")
    assert opened.evaluate(f"document.activeElement === {summary}")


def test_a_wait_leads_to_its_finding(show: Open, known_of: Callable[..., Known]) -> None:
    opened = show(known_of(500))
    link = opened.locator("#waits a").last
    name = link.get_attribute("href")
    opened.locator("#code").select_option("DG303")
    until(opened, "document.getElementById('told').textContent.startsWith('333')")
    link.click()
    until(opened, f"document.querySelector('{name} details')?.open")
    assert opened.evaluate("'#' + document.activeElement.closest('li').id") == name
    opened.locator(f"{name} summary").click()
    link.click()
    until(opened, f"document.querySelector('{name} details')?.open")


def test_a_theme_is_chosen_and_kept(show: Open, known_of: Callable[..., Known]) -> None:
    opened = show(known_of(5), color_scheme="dark")
    button = opened.locator("#theme")
    drawn = "getComputedStyle(document.querySelector('.small circle')).fill"
    seen = []
    for words in ("as the system", "dark", "light"):
        assert button.inner_text() == f"Theme: {words}"
        ground = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.append((ground, opened.evaluate(drawn)))
        button.click()
    assert seen[0] == seen[1] != seen[2] and seen[2][0] == "rgb(255, 255, 255)"
    button.click()
    assert opened.evaluate("localStorage.getItem('dispatchguard-theme')") == "dark"


def test_it_is_readable_without_a_script(show: Open, known_of: Callable[..., Known]) -> None:
    opened = show(known_of(500), java_script_enabled=False)
    told = opened.locator("main").inner_text()
    assert "500 findings in" in told and "6.663 ±0.421" in told
    assert "The other 300 are shown by a script" in told
    assert not opened.locator("#filter").is_visible() and not opened.locator("#theme").is_visible()
    row = opened.locator("#f0")
    row.locator("summary").click()
    assert "Hot: forward of a torch.nn.Module" in row.inner_text()
