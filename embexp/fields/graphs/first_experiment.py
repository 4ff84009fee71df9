"""The first experiment of a knowledge graph, for `embexp new`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, combinations, islice
from pathlib import Path

import numpy as np

from embexp.cli.first_experiment import Recognised, quoted
from embexp.errors import CommandLineError, ConfigError, DataError, plural
from embexp.fields.graphs import queries, triples
from embexp.system.parallel import quiet

_LINES_OF_A_GRAPH = 1_000
"""Number of lines by which the files of a graph are recognised."""
_MOST_SCORED = 5_000
"""The largest number of entities for which a step scores all."""


def recognised(folder: Path) -> Recognised | None:
    """A knowledge graph's folder, or file; None: it holds something else.

    Lines of three numbers might be users, items and ratings, and are a graph in OpenKE's files only. A file that does
    not say what its fields are is a graph if two of them have values in common, and the third has few different ones;
    or if they have most of them in common.

    Raises:
        CommandLineError: a line of its files is no triple, or they don't show which field is the relation.
    """
    try:
        files = triples.files_of(folder)
        first = [fields for fields, _ in islice(triples.lines_of(files.splits[0], files.names), _LINES_OF_A_GRAPH)]
    except (ConfigError, DataError):
        return None
    if not first:
        return None
    fields = [set(column) for column in zip(*first, strict=True)]
    if not files.ordered:
        apart = all(one.isdisjoint(other) for one, other in combinations(fields, 2))
        header = set(first[0]).isdisjoint(chain.from_iterable(first[1:]))
        if apart or (len(files.splits) == 1 and (header or not _is_one_graph(fields))):
            return None
    if not files.named and not files.ordered and all(text.isdigit() for column in fields for text in column):
        return None
    try:
        lines = queries.read_lines(files.splits, files.names, quiet)
        head, relation, tail = (0, 1, 2) if files.ordered else queries.fields_of(lines, None)
    except DataError as error:
        raise CommandLineError(f"embexp new: {error}") from error
    entities, relations = (np.unique(lines.fields[:, each]).size for each in ([head, tail], relation))
    about = f"{len(lines.fields):,} triples of {entities:,} entities and {plural(relations, 'relation')}"
    text = partial(_experiment, folder, about, entities > _MOST_SCORED)
    return Recognised(about, "task ranking: the entity that completes a triple, among all", text)


def _is_one_graph(fields: Sequence[set[str]]) -> bool:
    """Whether the fields of a file are heads, relations and tails in some order, judging by their distinct values."""
    for relation, head, tail in ((1, 0, 2), (0, 1, 2), (2, 0, 1)):
        names, ends, both = fields[relation], fields[head] | fields[tail], fields[head] & fields[tail]
        numbers = all(name.replace(".", "", 1).isdigit() for name in names)
        much = 2 * len(both) >= min(len(fields[head]), len(fields[tail])) and names.isdisjoint(ends)
        if both and (much or 5 * len(names) <= len(ends)) and not numbers:
            return True
    return False


def _experiment(path: Path, about: str, large: bool, name: str, command: str) -> str:
    """The YAML file of a first experiment on a knowledge graph: a shipped experiment, and the path of the graph.

    Args:
        path: the folder of the triples.
        about: the number of triples, entities and relations, as text.
        large: whether a step that scores all entities would take too long.
    """
    shipped, other = (
        ("knowledge_graph_large", "knowledge_graph") if large else ("knowledge_graph", "knowledge_graph_large")
    )
    why = "negative samples: a step costs what its batch costs" if large else "a step scores all entities"
    return f"""\
# @package _global_
# Link prediction in {quoted(path.name)}: {about}. A first experiment.
#   {command}
defaults:
  - {shipped}   # {why}; the other choice is {other}
  - _self_

name: {name}
data:
  path: {quoted(str(path.absolute()))}
"""
