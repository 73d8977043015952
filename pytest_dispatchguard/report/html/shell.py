"""The page around the parts of an HTML report: its head, its menu, and a policy by which nothing but its own
style and script is used."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.html.elements import Html, asset, el, hashed
from pytest_dispatchguard.report.wording import NAME


def document(title: str, parts: Sequence[tuple[str, str, Html]], data: str) -> str:
    """A page of parts, each with its identifier and its title in the menu; `data` is JSON for its script."""
    style, script = svg.themes() + asset("page.css"), asset("page.js")
    body = el(
        "body",
        el("a", "Skip to the end of the menu", href="#main", class_="skip"),
        _head([(name, title) for name, title, _ in parts]),
        el("main", *(part for _, _, part in parts), id="main", tabindex="-1"),
        el("script", Html(data), type="application/json", id="data"),
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Html(style)),
        el("script", Html(script)),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _policy(style: str, script: str) -> str:
    """Nothing from anywhere; no script and no style but the page's own."""
    return (
        f"default-src 'none'; style-src {hashed(style)}; script-src {hashed(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _head(sections: Sequence[tuple[str, str]]) -> Html:
    links = [el("li", el("a", title, href=f"#{name}")) for name, title in sections]
    return el(
        "header",
        el("p", NAME, class_="name"),
        el("nav", el("ul", *links), aria_label="Parts of this page"),
        el("button", "Theme: as the system", type="button", id="theme", hidden=True),
    )
