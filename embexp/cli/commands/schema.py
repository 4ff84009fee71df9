"""`embexp schema`: a JSON schema of the YAML files, for editors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError
from embexp.system.printable import print

HELP = """\
usage: embexp schema [GROUP] [--field MODULE:OBJECT] [--out FILE_OR_FOLDER] [--force]

Prints the JSON schema of the YAML files. With it, an editor completes keys, shows what they mean, and marks unknown
keys and values of a wrong type while you type. Rules between settings are only checked by `embexp plan`.

GROUP is the group of the files, such as optimizer. Without it, the schema describes whole configs: the root config,
experiments and graphs.

    --field M:O    Adds your own field, if no installed package provides it. You can repeat it.
    --out FILE     Writes the schema to FILE.
    --out FOLDER   Writes the schemas of all groups into an existing folder: config.json, optimizer.json, and so on.
    --force        Replaces files that embexp did not write, or that were changed since.

An editor with the YAML language server finds the schema by the first line of a file:

    # yaml-language-server: $schema=schemas/optimizer.json
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("schema", HELP)
    parser.add_argument("group", nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--field", action="append", default=[])
    parser.switches("--force")
    options = parser.parse(arguments)
    group: str | None = options.group
    out: Path | None = options.out
    from embexp.config import folders, yaml_schema
    from embexp.config.messages import did_you_mean
    from embexp.records.outputs import STANDARD_OUTPUT, output

    fields = [f"fields=[{','.join(options.field)}]"]
    found = folders.take_in_fields(folders.find(), "config", fields if options.field else [], lambda path: "")
    known = yaml_schema.groups(found)
    if group is not None and group not in known:
        near = did_you_mean(group, known) or f"the groups are {', '.join(known)}"
        raise CommandLineError(f"embexp schema: there is no group {group!r}\n    {near}")
    if out is not None and out.is_dir():
        if group is not None:
            raise CommandLineError(f"embexp schema: --out {out} is a folder, and takes all groups: leave {group} out")
        named = {each: out / f"{each.replace('/', '_')}.json" for each in known}
        outs = {each: output(path, "schema", option="--out", force=options.force) for each, path in named.items()}
        for each, file in outs.items():
            file.write(_text(yaml_schema.schema(found, each)))
        print(f"wrote {len(known)} schemas to {out}: {', '.join(known)}")
        return DONE
    file = output(out or STANDARD_OUTPUT, "schema", option="--out", force=options.force)
    file.write(_text(yaml_schema.schema(found, group or yaml_schema.CONFIG)))
    if file.is_file:
        print(f"wrote {out}")
    return DONE


def _text(schema: object) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
