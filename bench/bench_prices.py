"""What the pattern of every rule costs over its fix, and whether each fix pays.

    python bench/bench_prices.py [--seconds S] [--ship] [CODE...]

Measures all specimens as `dispatchguard price` does. Written to bench/results/prices.json and prices.md;
`--ship` makes it the table that the rules come with. Fails where the good form of a specimen does not surely
cost less.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_dispatchguard.commands.measuring import price_rules
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.report.progress import progress

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "prices.json"
SHIPPED = ROOT / "rules" / "prices.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("codes", nargs="*", metavar="CODE", help="codes or prefixes; all without")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each specimen")
    parser.add_argument("--ship", action="store_true", help="write rules/prices.json as well")
    options = parser.parse_args(arguments)
    if options.codes and options.ship:
        parser.error("--ship goes without codes: the table is made whole")
    with tempfile.TemporaryDirectory() as folder, progress() as tell:
        asked = price_rules.Asked(options.codes, options.seconds, Path(folder))
        try:
            table, _ = price_rules.priced(asked, tell or (lambda what, done, of: None))
        except UserError as error:
            print(f"bench_prices: {error}", file=sys.stderr)
            return 2
    print(price_rules.written(table, "text"))
    if not options.codes:
        title = "# Prices of patterns\n\n"
        RESULTS.write_text(price_rules.written(table, "json"), encoding="utf-8")
        page = RESULTS.with_suffix(".md")
        page.write_text(title + price_rules.written(table, "markdown"), encoding="utf-8")
    if options.ship:
        SHIPPED.write_text(price_rules.written(table, "json"), encoding="utf-8")
    return 0 if all(one.proven for one in table.specimens) else 1


if __name__ == "__main__":
    sys.exit(main())
