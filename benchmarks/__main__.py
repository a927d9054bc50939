"""Ours beside the official client, beside the alternatives and beside the limit, in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parts import PARTS, run_part
from benchmarks.place import Place, Scale
from benchmarks.report import as_json, facts, table

ROUNDS = {Scale.TINY: 1, Scale.QUICK: 3, Scale.FULL: 3}


def main(given: Sequence[str] | None = None) -> None:
    """Run the parts that were named, or all, and print a table."""
    options = _parser().parse_args(given)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}: name some of {', '.join(PARTS)}")
    scale: Scale = options.scale
    rounds: int = options.rounds or ROUNDS[scale]
    results = []
    with Place(scale, options.bootstrap, options.keys) as place:
        for part in options.parts or PARTS:
            results += run_part(part, place, rounds, options.only)
    if not results:
        raise SystemExit(f"no case's name holds {options.only!r}")
    print(table(results))
    if options.json:
        options.json.write_text(as_json(results, facts(rounds, scale, options.keys)))
        print(f"written to {options.json}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; else all")
    size = parser.add_mutually_exclusive_group()
    sizes = {Scale.QUICK: "less data, fewer rounds", Scale.TINY: "only to see that it runs"}
    for scale, help_ in sizes.items():
        size.add_argument(f"--{scale}", dest="scale", action="store_const", const=scale, help=help_)
    parser.set_defaults(scale=Scale.FULL)
    parser.add_argument("--rounds", type=int, default=0, help="rounds per case")
    parser.add_argument("--keys", type=int, default=0, help="keys of `mirrors` and `lake_keys`")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--bootstrap", default="", help="use this cluster instead of a new one")
    return parser


if __name__ == "__main__":
    main()
