"""`python -m tinyfn.testing fuzz`: the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tinyfn.testing.catalogue import CATALOGUE
from tinyfn.testing.fuzz import Options, fuzz, names
from tinyfn.testing.ways import WAYS


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    top = argparse.ArgumentParser(prog="python -m tinyfn.testing")
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser("fuzz", help="draw, check, stop at the first failure and shrink it")
    one.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    one.add_argument("--seed", type=int, default=0, help="the first seed; each round takes one (0)")
    one.add_argument("--ops", type=names, help=f"kinds of lines, of {','.join(CATALOGUE)}")
    one.add_argument("--length", type=int, default=6, help="most lines of a program (6)")
    one.add_argument("--ways", type=names, help=f"run in these ways, too, of {','.join(WAYS)}")
    one.add_argument("--module", help="fuzz the functions of this module instead of tinyfn")
    one.add_argument("--examples", type=int, help="stop after this many")
    one.add_argument("--out", type=Path, default=Path(), help="where a found test is written (.)")
    one.add_argument("--quiet", action="store_true", help="no progress line")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the status is 1 where something was found."""
    given = parser().parse_args(arguments)
    options = Options(
        seconds=given.seconds,
        seed=given.seed,
        ops=given.ops,
        length=given.length,
        ways=given.ways,
        module=given.module,
        folder=given.out,
        examples=given.examples,
        progress=not given.quiet,
    )
    return fuzz(options)


if __name__ == "__main__":
    sys.exit(main())
