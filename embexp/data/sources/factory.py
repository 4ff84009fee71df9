"""From the description of a source to the source itself."""

from __future__ import annotations

from typing import assert_never

from embexp.data import fetching
from embexp.data.sources import csv, custom, parquet, recbole
from embexp.data.sources.clicks import ClickSource
from embexp.data.sources.skipgram import SkipGramSource
from embexp.data.sources.source import Source
from embexp.data.sources.text import TextSource
from embexp.data.sources.triples import TripleSource
from embexp.specs.data import CSV, Clicks, CustomData, Data, Parquet, RecBole, SkipGram, Text, Triples


def source_of(data: Data) -> Source:
    """The source that a config describes; a data set by name must have been fetched before it is read."""
    data = fetching.located(data)
    match data:
        case Clicks():
            return ClickSource(data)
        case RecBole():
            return recbole.source(data)
        case CSV():
            return csv.source(data)
        case Parquet():
            return parquet.source(data)
        case CustomData():
            return custom.source(data)
        case Text():
            return TextSource(data)
        case SkipGram():
            return SkipGramSource(data)
        case Triples():
            return TripleSource(data)
        case _:
            assert_never(data)
