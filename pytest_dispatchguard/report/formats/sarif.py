"""``--format sarif``: SARIF 2.1.0, for code scanning and the viewers in editors."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pytest_dispatchguard.model.findings import Edit, Elsewhere, Finding, Fix, RuleInfo, Span
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.fingerprint import fingerprints
from pytest_dispatchguard.report.formats.json_ import dump, hot_object, traced_object
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.wording import (
    HOME,
    NAME,
    costs,
    docs_url,
    heat,
    ordered,
    severity,
    statement,
)

SCHEMA_URL = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
_LEVELS = {"error": "error", "warning": "warning", "note": "note", "hint": "note"}
"""SARIF's weakest level of a problem is the note; the properties say which is only maybe one."""
_LONGEST = 2000
"""The most characters of a source line shown around a result."""
FINGERPRINT = "dispatchguardFinding/v1"


def render(report: Report, options: Options) -> str:
    """A log of one run."""
    findings = ordered(report)
    rules = _rules(report, findings)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    results = [
        _result(finding, index[finding.code], fingerprint)
        for finding, fingerprint in zip(findings, fingerprints(findings), strict=True)
    ]
    return dump(
        {
            "$schema": SCHEMA_URL,
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {
                        "driver": {
                            "name": NAME,
                            "version": report.version,
                            "informationUri": HOME,
                            "rules": rules,
                        }
                    },
                    "invocations": [
                        {
                            "executionSuccessful": True,
                            "toolExecutionNotifications": [
                                {"level": "note", "message": {"text": note}}
                                for note in report.notes
                            ],
                        }
                    ],
                    "originalUriBaseIds": {
                        ROOT: {"description": {"text": "The root of the project."}}
                    },
                    "columnKind": "unicodeCodePoints",
                    "results": results,
                }
            ],
        }
    )


def uri(path: str) -> str:
    """A project path as a relative URI."""
    return quote(path, errors="surrogateescape")


def _rules(report: Report, findings: list[Finding]) -> list[dict[str, Any]]:
    rules = {rule.code: rule for rule in report.rules}
    for finding in findings:
        if finding.code not in rules:
            words = f"{finding.rule.replace('-', ' ').capitalize()}."
            rules[finding.code] = RuleInfo(finding.code, finding.rule, words, "", "none", "")
    return [_rule(rules[code]) for code in sorted(rules)]


def _rule(rule: RuleInfo) -> dict[str, Any]:
    # Code scanning refuses a rule without descriptions and help.
    page = rule.help or f"{rule.summary} See <{docs_url(rule.code)}>.\n"
    properties = {"tags": ["performance"], "fix": rule.fix}
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.summary},
        "help": {"text": page, "markdown": page},
        "helpUri": docs_url(rule.code),
        "defaultConfiguration": {"enabled": rule.default, "level": "warning"},
        "properties": properties | ({"origin": rule.origin} if rule.origin else {}),
    }


def _result(finding: Finding, rule_index: int, fingerprint: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[severity(finding)],
        "message": {"text": _message(finding)},
        "locations": [_location(finding)],
        "partialFingerprints": {FINGERPRINT: fingerprint},
        "properties": {
            "certainty": finding.certainty,
            "hot": None if finding.hot is None else hot_object(finding.hot),
            "priceUs": None if finding.price is None else finding.price.us,
            **({} if finding.traced is None else {"traced": traced_object(finding.traced)}),
        },
    }
    if finding.fix is not None:
        result["fixes"] = [_fix(finding.fix)]
    if finding.elsewhere is not None:
        result["relatedLocations"] = [_related(finding.elsewhere)]
    return result


def _related(place: Elsewhere) -> dict[str, Any]:
    return {
        "id": 1,
        "message": {"text": f"where the pattern is, in {place.function}"},
        "physicalLocation": {
            "artifactLocation": _artifact(place.path),
            "region": _region(place.span),
        },
    }


def _message(finding: Finding) -> str:
    lines = [statement(finding)]
    if finding.hot is not None:
        lines.append(f"hot: {heat(finding.hot)}")
    if costs(finding):
        lines.append(costs(finding))
    return "\n".join(lines)


def _location(finding: Finding) -> dict[str, Any]:
    span = finding.span
    place: dict[str, Any] = {
        "artifactLocation": _artifact(finding.path),
        "region": _region(span),
    }
    # The context must contain the region, but only the first line is known here. A line that nobody would
    # read is left out: a generated line may have thousands of findings.
    if 0 < len(finding.source) <= _LONGEST and span.line == span.end_line:
        place["contextRegion"] = {"startLine": span.line, "snippet": {"text": finding.source}}
    location: dict[str, Any] = {"physicalLocation": place}
    if finding.function:
        location["logicalLocations"] = [
            {"fullyQualifiedName": finding.function, "kind": "function"}
        ]
    return location


def _fix(fix: Fix) -> dict[str, Any]:
    files: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        files.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": fix.message},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(path),
                "replacements": [
                    {
                        "deletedRegion": _region(edit.span),
                        "insertedContent": {"text": edit.replacement},
                    }
                    for edit in edits
                ],
            }
            for path, edits in files.items()
        ],
        "properties": {"safety": fix.safety},
    }


def _artifact(path: str) -> dict[str, str]:
    return {"uri": uri(path), "uriBaseId": ROOT}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
