"""`embexp keys`: explains the keys of the config."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.config.keys import Key, Part

HELP = """\
usage: embexp keys [KEY | WORD…] [--field MODULE:OBJECT]

Explains the keys of the config: type, allowed values, default and meaning. Without arguments, it lists the parts of the
config.

    embexp keys train                    Explains the keys of train.
    embexp keys tables.item.dim          Explains one key. Any table name works.
    embexp keys early_stopping           Explains a key, or the keys of a mapping, at any depth.
    embexp keys learning rate            Finds all keys whose name or explanation contains these words.

    --field M:O   Adds your own field, if no installed package provides it. You can repeat it.

docs/reference/keys.md lists all keys on one page.
"""
_WIDEST = 120


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("keys", HELP)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--field", action="append", default=[])
    options = parser.parse(arguments)
    from embexp.config import folders, keys
    from embexp.config.messages import did_you_mean

    fields = [f"fields=[{','.join(options.field)}]"]
    found = folders.take_in_fields(folders.find(), "config", fields if options.field else [], lambda path: "")
    parts = keys.parts(found)
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    if not options.words:
        _list(parts, width)
        return DONE
    chosen = keys.matching(parts, options.words)
    if not chosen:
        asked = " ".join(options.words)
        near = did_you_mean(asked, [key.path for part in parts for key in part.keys])
        raise CommandLineError(
            f"embexp keys: no key has {asked!r} in its name or explanation\n    {near or 'embexp keys'}"
        )
    for number, (part, found_keys) in enumerate(chosen):
        print("\n" * bool(number) + "\n".join(_lines(part, found_keys, width)))
    return DONE


def _list(parts: Sequence[Part], width: int) -> None:
    longest = max(len(part.path) for part in parts)
    for part in parts:
        text = textwrap.shorten(part.text, width - longest - 8, placeholder=" …")
        print(f"{part.path or '(top level)':{longest}}  {len(part.keys):>3}  {text}")
    print("\nembexp keys NAME explains the keys of one part; embexp keys WORD… searches all of them.")


def _lines(part: Part, keys: Sequence[Key], width: int) -> list[str]:
    whole = len(keys) == len(part.keys)
    lines = textwrap.wrap(f"{part.path or 'top level'}: {part.text}", width) if whole else []
    if whole and part.also:
        lines += textwrap.wrap(f"also at: {', '.join(part.also)}", width)
    if whole and part.choices:
        longest = max(map(len, part.choices))
        for kind, text in part.choices.items():
            lines += textwrap.wrap(
                f"{kind:{longest}}  {text}", width, initial_indent="  ", subsequent_indent=" " * (longest + 4)
            )
    for key in keys:
        default = f" = {key.default}" if key.default else ""
        of = f"; of {', '.join(key.of)}" if key.of else ""
        lines += ["", *textwrap.wrap(f"{key.path}{default}    ({key.values}{of})", width, subsequent_indent="    ")]
        lines += textwrap.wrap(key.text, width, initial_indent="    ", subsequent_indent="    ")
    return lines[1:] if lines and not lines[0] else lines
