"""Reviews sent to code hosts: once each, whatever goes wrong on the way; no secret in what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Hot, Span
from pytest_dispatchguard.model.reviews import Remark, Review, Stretch
from pytest_dispatchguard.post import github, gitlab
from pytest_dispatchguard.post.sending import Posted, send
from pytest_dispatchguard.post.web import Web
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.markdown import comments

from .conftest import HEAD, TOKEN, Host

TEXT = "".join(f"line{n}()\n" for n in range(1, 31))
MARK = "<!-- dispatchguard: summary -->"
HOT = Hot("Net.forward", ("Net.forward",), "forward of a torch.nn.Module")


def finding(line: int, last: int | None = None, *, fix: str | None = None) -> Finding:
    last = last or line
    span = Span(line, 1, last, len(f"line{last}()") + 1)
    edits = None if fix is None else Fix("safe", "shorter", (Edit("a.py", span, fix),))
    return Finding(
        "DG601",
        "r",
        "a.py",
        span,
        "forward",
        f"slow {line}",
        hot=HOT,
        fix=edits,
        source=f"line{line}()",
    )


def remark(found: Finding) -> Remark:
    shown = Stretch(3, 20, "old.py", {n: n + 100 for n in range(3, 6)})
    return Remark(found, found.span.line, found.span.end_line, shown)


REVIEW = Review(
    "main",
    (remark(finding(7, fix="line()")), remark(finding(9, 11, fix="x\ny")), remark(finding(4))),
    (finding(28),),
    (finding(2),),
)
OPTIONS = Options(sources={"a.py": TEXT}.get)
Send = Callable[..., Posted]


@pytest.fixture(params=["github", "gitlab"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sent(kind: str, host: Host, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Posted]:
    """Sends a review as a CI job of that host would, without waiting between attempts."""
    host.shown = {"a.py": set(range(3, 21))}
    # A job of GitHub has a token that may not ask whose it is.
    host.login = "ci" if kind == "gitlab" else None
    naps: list[float] = []
    monkeypatch.setattr(Web.__init__, "__defaults__", (60.0, 0.5, naps.append))

    def sent(review: Review = REVIEW, commit: str = HEAD, **environment: str) -> Posted:
        return send(made(kind, host, **environment), review, OPTIONS, commit)

    return sent


def made(kind: str, host: Host, **more: str) -> Any:
    if kind == "github":
        return github.from_environment(
            {
                "GITHUB_API_URL": host.address,
                "GITHUB_REPOSITORY": "me/lib",
                "GITHUB_REF": "refs/pull/7/merge",
                "GITHUB_TOKEN": TOKEN,
                **more,
            }
        )
    return gitlab.from_environment(
        {
            "CI_API_V4_URL": host.address,
            "CI_PROJECT_ID": "me/lib",
            "CI_PROJECT_URL": "https://gitlab.example/me/lib",
            "CI_MERGE_REQUEST_IID": "7",
            "GITLAB_TOKEN": TOKEN,
            **more,
        }
    )


def texts(host: Host) -> list[str]:
    return [comment["body"] for comment in host.comments]


def test_comments_stand_at_lines_and_one_summary_beside_them(
    host: Host, sent: Send, kind: str
) -> None:
    done = sent()
    assert (done.new, done.there, done.note) == (3, 0, "")
    assert done.address.startswith(f"https://{kind}.example/")
    (note,) = host.notes
    assert note["body"].rstrip().endswith(MARK)
    assert "3 comments stand on the changed lines" in note["body"]
    assert "slow 28" in note["body"]  # no line of the change shows it
    assert "slow 7" not in note["body"]
    assert "Resolved" in note["body"]
    assert [("slow 7" in t, "slow 9" in t, "slow 4" in t) for t in texts(host)] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    if kind == "github":
        places = [(c.get("start_line"), c["line"]) for c in host.comments]
        assert places == [(None, 7), (9, 11), (None, 4)]
        assert "```suggestion\nx\ny\n```" in texts(host)[1]
    else:
        positions = [c["position"] for c in host.comments]
        assert [p["new_line"] for p in positions] == [7, 11, 4]
        # A line that the change left as it was is known by both of its numbers.
        assert [p.get("old_line") for p in positions] == [None, None, 104]
        assert {p["old_path"] for p in positions} == {"old.py"}
        assert "```suggestion:-2+0\nx\ny\n```" in texts(host)[1]


def test_a_second_run_adds_only_what_is_new(host: Host, sent: Send) -> None:
    sent(replace(REVIEW, remarks=REVIEW.remarks[:2]))
    done = sent()
    assert (done.new, done.there) == (1, 2)
    assert len(host.comments) == 3
    (note,) = host.notes
    assert "3 comments stand" in note["body"]
    again = sent()
    assert (again.new, again.there) == (0, 3)
    assert len(host.comments) == 3
    assert len(host.notes) == 1


def test_the_summary_is_found_among_many(host: Host, sent: Send) -> None:
    host.notes += [{"id": n, "body": f"talk {n}"} for n in range(1, 251)]
    host.notes.append({"id": 400, "body": f"quoting {MARK}, as people do"})
    sent()
    assert len(host.notes) == 252
    sent(replace(REVIEW, others=()))
    assert len(host.notes) == 252
    assert "slow 28" not in host.notes[-1]["body"]


def test_what_others_write_is_left_to_them(host: Host, sent: Send) -> None:
    """Anybody can end a comment in our marks."""
    eve = {"user": {"login": "eve", "type": "User"}, "author": {"username": "eve"}}
    host.notes.append({"id": 1, "body": f"nothing to see {MARK}", **eve})
    first = comments(REVIEW, OPTIONS)[0].fingerprint
    host.comments.append({"body": f"done <!-- dispatchguard: {first} -->", **eve})
    assert (sent().new, len(host.comments)) == (3, 4)
    assert host.notes[0]["body"] == f"nothing to see {MARK}"
    assert len(host.notes) == 2
    assert sent().there == 3
    assert len(host.notes) == 2


@pytest.mark.parametrize("kind", ["github"])
def test_a_token_of_a_person_knows_its_own(host: Host, sent: Send) -> None:
    host.login = "ci[bot]"
    assert sent().new == 3
    assert sent().there == 3
    host.login = "somebody"
    assert sent().new == 3  # those of another account are not its own
    assert len(host.notes) == 2


def test_nothing_is_said_where_there_is_nothing_to_say(host: Host, sent: Send) -> None:
    clean = Review("main", (), (), ())
    assert sent(clean).address == ""
    assert host.comments == host.notes == []
    sent()
    done = sent(clean)  # but what was said is put right
    assert done.address
    (note,) = host.notes
    assert "nothing new" in note["body"]


def test_what_a_host_does_not_take_at_its_line_is_in_the_summary(host: Host, sent: Send) -> None:
    host.shown = {"a.py": set(range(3, 10))}  # lines 9 to 11 are in none of its hunks
    done = sent()
    assert done.new == 2
    (note,) = host.notes
    assert "slow 9" in note["body"]
    assert "2 comments stand" in note["body"]


def test_lines_of_another_commit_are_not_commented_on(host: Host, sent: Send) -> None:
    done = sent(commit="d" * 40)
    assert "check out the head itself" in done.note
    assert host.comments == []
    (note,) = host.notes
    for number in (7, 9, 4, 28):
        assert f"slow {number}" in note["body"]


# -- what goes wrong -------------------------------------------------------------------------------


def paths(kind: str) -> tuple[str, str]:
    """Where comments at lines are made, and summaries."""
    return ("/reviews", "issues/7/comments") if kind == "github" else ("/discussions", "7/notes")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_what_passes_is_waited_out(host: Host, sent: Send, kind: str, status: int) -> None:
    for method in ("GET", "POST"):
        for path in paths(kind):
            host.fail(method, path, status, times=2, headers={"Retry-After": "0"})
    assert sent().new == 3
    assert len(host.comments) == 3
    assert len(host.notes) == 1


def test_what_was_done_though_nobody_said_so_is_not_done_twice(
    host: Host, sent: Send, kind: str
) -> None:
    for path in paths(kind):
        host.fail("POST", path, 502, after=True)
    assert sent().new == 3
    assert len(host.comments) == 3
    assert len(host.notes) == 1


def test_a_host_that_hangs_is_asked_again(host: Host, sent: Send, kind: str) -> None:
    host.fail("GET", "7$", 0, hang=20)
    host.fail("POST", paths(kind)[1], 0, hang=20, after=True)
    assert sent().new == 3
    assert len(host.notes) == 1


def complaint(sent: Send, **environment: str) -> str:
    with pytest.raises(UserError) as caught:
        sent(**environment)
    message = str(caught.value)
    assert message.startswith("--post: ")
    assert "\n" not in message
    assert len(message) < 500
    for secret in (TOKEN, "hunter2"):
        assert secret not in message
    return message


def test_a_host_that_stays_down(host: Host, sent: Send, kind: str) -> None:
    host.fail("GET", "7$", 503, times=99)
    assert "answers 503, 4 times; try again later" in complaint(sent)
    host.failures.clear()
    host.fail("POST", paths(kind)[0], 500, times=99)
    assert "3 times; try again later" in complaint(sent)


def test_a_rate_limit_of_an_hour_is_not_waited_for(host: Host, sent: Send) -> None:
    host.fail("GET", "7$", 403, headers={"x-ratelimit-remaining": "0", "Retry-After": "3600"})
    assert "60 minutes (rate limit)" in complaint(sent)


def test_a_wrong_token_is_not_shown(host: Host, sent: Send, kind: str) -> None:
    name = "GITHUB_TOKEN" if kind == "github" else "GITLAB_TOKEN"
    told = complaint(sent, **{name: "hunter2"})  # which the host says back
    assert "answers 401" in told
    assert "***" in told
    assert name in told


def test_a_token_that_may_not_write(host: Host, sent: Send, kind: str) -> None:
    host.fail(
        "POST", paths(kind)[0], 403, body={"message": "Resource not accessible by integration"}
    )
    told = complaint(sent)
    assert "Resource not accessible by integration" in told
    assert "may not write" in told
    assert host.notes == []


def test_a_request_that_is_not_there(host: Host, sent: Send) -> None:
    host.fail("GET", "7$", 404, body={"message": "Not Found"})
    assert "answers 404 (Not Found): no such" in complaint(sent)


def test_a_page_in_place_of_an_answer(host: Host, sent: Send) -> None:
    host.fail("GET", "7$", 200, body=b"<html>sign in</html>")
    assert "no JSON" in complaint(sent)


def test_a_redirect_takes_no_token_elsewhere(host: Host, sent: Send) -> None:
    host.fail("GET", "7$", 302, headers={"Location": "http://127.0.0.1:9/steal"})
    assert "answers 302" in complaint(sent)


def test_nobody_there(host: Host, sent: Send, kind: str) -> None:
    name = "GITHUB_API_URL" if kind == "github" else "CI_API_V4_URL"
    assert "cannot be reached" in complaint(sent, **{name: "http://127.0.0.1:1"})
    for address in ("ftp://x", "", "nonsense", "http://"):
        if kind == "github" and not address:
            continue  # GitHub's own is meant then
        assert "is no web address" in complaint(sent, **{name: address})


def test_a_token_of_two_lines(host: Host, sent: Send, kind: str) -> None:
    for token in ("hunter2\nX-Evil: 1", "hunter2\u2013x"):
        assert "no token has" in complaint(sent, DISPATCHGUARD_TOKEN=token)


def test_a_job_without_what_it_takes(host: Host, sent: Send, kind: str) -> None:
    if kind == "github":
        assert "no token" in complaint(sent, GITHUB_TOKEN="")
        assert "names no repository" in complaint(sent, GITHUB_REPOSITORY="")
        assert "for no pull request" in complaint(sent, GITHUB_REF="refs/heads/main")
    else:
        assert "no token" in complaint(sent, GITLAB_TOKEN="")
        assert "for no merge request" in complaint(sent, CI_MERGE_REQUEST_IID="")


@pytest.mark.parametrize("kind", ["github"])
def test_the_number_can_come_from_the_event(host: Host, tmp_path: Path, sent: Send) -> None:
    event = tmp_path / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    assert sent(GITHUB_REF="", GITHUB_EVENT_PATH=str(event)).new == 3
    event.write_text("[")
    assert "for no pull request" in complaint(sent, GITHUB_REF="", GITHUB_EVENT_PATH=str(event))


def test_the_token_goes_where_the_host_wants_it(host: Host, sent: Send, kind: str) -> None:
    sent()
    assert host.authorized == {f"Bearer {TOKEN}" if kind == "github" else TOKEN}
