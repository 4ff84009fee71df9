"""From the description of a source to the source itself."""

from __future__ import annotations

from embexp.data import fetching
from embexp.data.sources.source import Source
from embexp.specs.base import implementation
from embexp.specs.data import Data


def source_of(data: Data) -> Source:
    """The source that a config describes; a data set by name must have been fetched before it is read."""
    source: Source = implementation(fetching.located(data))()
    return source
