"""The part of a pytest run that gathers verdicts, tells them, and writes them to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_dispatchguard.pytest_run.lost_workers import Losses
from pytest_dispatchguard.pytest_run.options import Options

if TYPE_CHECKING:
    from pytest_dispatchguard.history.trends import Began
    from pytest_dispatchguard.measure.revisions.run_files import Taken
    from pytest_dispatchguard.model.verdicts import Verdict
    from pytest_dispatchguard.pytest_run.traces import Traces


class Gatherer:
    """Takes verdicts from the reports of tests, which also come from the processes of pytest-xdist. What it
    needs of ours is imported with the first verdict: a run without any needs none of it."""

    def __init__(
        self,
        config: pytest.Config,
        options: Options,
        saving: Path | None,
        traces: Traces | None = None,
    ) -> None:
        self.config = config
        self.traces = traces
        """What is written beside the verdicts."""
        self.options = options
        self.saving = saving
        """The file that what is measured is kept in."""
        self.verdicts: list[Verdict] = []
        self.taken: list[Taken] = []
        self.collected: set[str] = set()
        self.shared = False
        """Whether tests were measured in one process."""
        self.losses = Losses()
        """Tests of which there is no verdict."""
        self.trouble = ""
        """Why a file could not be written; empty where all were."""
        self.written = ""
        """What became of the file of budgets; empty where it was not to be written."""
        self.unkept = ""
        """Why the run is not in the history; empty where it is, or need not be."""
        self.began: Began | None = None
        """What the history tells of the run; None where it keeps none."""
        self.whole = not any("::" in str(word) for word in config.args)
        """Whether every test of the files that were collected is run."""

    def _all_tests(self) -> set[str]:
        """Every test of the files that were collected; none where that is not known."""
        return self.collected if self.whole else set()

    def pytest_sessionstart(self) -> None:
        """Notes what is measured, before tests or people can change it."""
        if self.options.history is not None:
            from pytest_dispatchguard.history.trends import Began

            self.began = Began.now(self.config.rootpath)

    def pytest_deselected(self) -> None:
        """Some tests are left out."""
        self.whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keeps which tests there are."""
        self.collected = {item.nodeid for item in session.items}

    @pytest.hookimpl(tryfirst=True)  # before the failure is shown
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what the report of a test carries."""
        if self.losses.crashed(report):
            return
        self.shared |= getattr(report, "overhead_shared", False)
        if not hasattr(report, "overhead"):
            if report.skipped and "overhead_budget" in report.keywords:
                self.verdicts.append(_skipped(report))
            return
        from pytest_dispatchguard.measure.workers import reports

        verdicts = reports.verdicts_of([report])
        if report.skipped and hasattr(report, "wasxfail"):
            verdicts = [_expected(verdict, report.wasxfail) for verdict in verdicts]
        self.verdicts += verdicts
        costly = [line for v in verdicts if v.verdict == "fail" for line in v.lines]
        if report.failed and costly:
            _add_findings(report, {(line.path, line.line) for line in costly})
        samples = getattr(report, "overhead_samples", None)
        if samples is not None and (self.saving is not None or self.options.histogram is not None):
            from pytest_dispatchguard.measure.revisions import run_files

            self.taken += run_files.taken(verdicts, samples)
            if self.saving is not None:
                self._save(self.saving)

    def _save(self, path: Path) -> None:
        """Writes the run after each test: one that is killed halfway is kept as far as it came."""
        from pytest_dispatchguard import project_folder
        from pytest_dispatchguard.measure.revisions import run_files

        text = run_files.as_text(self.taken)
        if text:
            project_folder.write(path, text.encode())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        from pytest_dispatchguard.visible import one_line

        if self.trouble:
            terminalreporter.line(f"ERROR: {one_line(self.trouble)}", red=True)
        if self.unkept:
            said = f"warning: the run is not in the history: {self.unkept}"
            terminalreporter.line(one_line(said), yellow=True)
        for one in self.losses.found():
            terminalreporter.line(one_line(f"warning: no verdict: {one.said()}"), yellow=True)
        if not self.verdicts:
            return
        from pytest_dispatchguard.measure.budgets import budget_file, session
        from pytest_dispatchguard.measure.budgets.comparison import less_precise
        from pytest_dispatchguard.report.budgets import paces
        from pytest_dispatchguard.report.budgets.sorting import in_groups

        terminalreporter.section("overhead budgets")
        for label, verdicts in in_groups(self.verdicts, self.options.group_by):
            if label:
                terminalreporter.line(f"{label}:", bold=True)
            self._table(terminalreporter, verdicts)
        for line in paces.of_run(self.verdicts):
            terminalreporter.line(line)
        if self.shared:
            terminalreporter.line(
                "tests were measured without a process of their own: an accelerator is in use"
            )
        undecided = sum(verdict.verdict == "undecided" for verdict in self.verdicts)
        if undecided and self.options.undecided == "warn":
            said = f"warning: {undecided} undecided: times were too uncertain to decide, see above"
            terminalreporter.line(said, yellow=True)
        for line in less_precise(self.verdicts, self.options.precision):
            terminalreporter.line(line, yellow=True)
        if self.written:
            terminalreporter.line(self.written)
        if self.options.mode != "update":
            path = self.config.rootpath / budget_file.NAME
            for line in session.compared(self.verdicts, path, self._all_tests()):
                terminalreporter.line(one_line(line))

    def _table(self, reporter: pytest.TerminalReporter, verdicts: Sequence[Verdict]) -> None:
        from pytest_dispatchguard.report.budgets import terminal
        from pytest_dispatchguard.report.budgets.verdicts import plain_lines, table_of

        table, writer = table_of(verdicts, self.options.sort), reporter._tw
        if writer.hasmarkup and terminal.fits(table, writer.fullwidth):
            terminal.show(table, writer._file, writer.fullwidth)
        else:
            for line in plain_lines(table):
                reporter.line(line)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The files."""
        if self.began is not None and self.verdicts:
            self._keep(self.began)
        updating = self.options.mode == "update" and bool(self.verdicts)
        files = (self.options.json, self.options.report, self.options.histogram)
        if not any(files) and not updating:
            return
        from pytest_dispatchguard.lint.sources.files import write_source
        from pytest_dispatchguard.measure.budgets import budget_file
        from pytest_dispatchguard.measure.budgets.machine import installed_versions
        from pytest_dispatchguard.measure.budgets.session import rewritten
        from pytest_dispatchguard.model.errors import UserError
        from pytest_dispatchguard.report.budgets.markdown import as_markdown
        from pytest_dispatchguard.report.budgets.verdicts import as_json

        try:
            if self.options.json is not None:
                traces = None if self.traces is None else self.traces.as_objects()
                told = as_json(self.verdicts, _installed_versions(), self.losses.found(), traces)
                _write(self.options.json, told.encode())
            report = self.options.report
            if report is not None:
                page = report.suffix.lower() == ".html"
                text = self._page() if page else as_markdown(self.verdicts, installed_versions())
                _write(report, text.encode())
            if self.options.histogram is not None:
                _write(self.options.histogram, self._histogram().encode())
            if updating:
                path = self.config.rootpath / budget_file.NAME
                budgets = rewritten(path, self.verdicts, self._all_tests()).encode()
                same = path.is_file() and path.read_bytes() == budgets
                write_source(path, budgets)
                self.written = f"{path.name}: {'nothing changed' if same else 'written'}"
        except (UserError, OSError) as error:
            self.trouble = str(error)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _keep(self, began: Began) -> None:
        from pytest_dispatchguard.history.trends import keep, place_of
        from pytest_dispatchguard.model.errors import UserError

        try:
            place = place_of(self.options.history or "", self.config.rootpath)
            keep(self.verdicts, _installed_versions(), began, place)
        except UserError as error:
            self.unkept = str(error)

    def _histogram(self) -> str:
        from pytest_dispatchguard.report.charts import histograms

        spreads = [
            histograms.Spread(
                one.key,
                [us for sample in one.samples for us in sample.values[0]],
                [us for sample in one.samples for us in sample.values[1]],
            )
            for one in self.taken
        ]
        return histograms.as_svg(spreads, _installed_versions())

    def _page(self) -> str:
        from pytest_dispatchguard import __version__
        from pytest_dispatchguard.history.trends import earlier
        from pytest_dispatchguard.measure.budgets.machine import installed_versions
        from pytest_dispatchguard.model.errors import UserError
        from pytest_dispatchguard.report.html import page as html

        try:
            tests = [verdict.node_id for verdict in self.verdicts]
            trends = earlier(self.options.history, tests, self.config.rootpath)
        except UserError:
            trends = {}  # that it cannot be read is told where the run is kept
        known = html.Known(
            __version__, verdicts=self.verdicts, machine=installed_versions(), trends=trends
        )
        return html.page(known)


def _installed_versions() -> dict[str, str]:
    """What figures are from: the processor, too."""
    from pytest_dispatchguard.measure.budgets.machine import installed_versions, processor

    return {"cpu": processor(), **installed_versions()}


def _skipped(report: pytest.TestReport) -> Verdict:
    from pytest_dispatchguard.model.verdicts import Verdict

    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    name = report.nodeid.rpartition("::")[2]
    return Verdict(report.nodeid, name, "skipped", {}, reason=why.removeprefix("Skipped: "))


def _expected(verdict: Verdict, why: str) -> Verdict:
    """The verdict of a test that is known to fail."""
    told = f"expected to fail{why and ': ' + why}; {verdict.reason}"
    return (
        verdict if verdict.verdict == "pass" else replace(verdict, verdict="skipped", reason=told)
    )


def _write(path: Path, data: bytes) -> None:
    from pytest_dispatchguard.lint.sources.files import write_source

    if path.exists() and not path.is_file():
        path.write_bytes(data)  # a device or a pipe is written to, never replaced
    else:
        write_source(path, data)


def _add_findings(report: pytest.TestReport, costly: set[tuple[str, int]]) -> None:
    """Adds what the linter knows of the lines that cost most."""
    from pytest_dispatchguard.lint.known_hot import findings_on
    from pytest_dispatchguard.report.budgets.verdicts import advice

    found = findings_on(sorted(costly))
    if found:
        report.sections.append(("What the linter says of these lines", advice(found)))
