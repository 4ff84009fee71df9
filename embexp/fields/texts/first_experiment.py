"""The first experiment of labelled texts, as `embexp new` writes it."""

from __future__ import annotations

from embexp.cli.first_experiment import (
    INITIALIZER,
    SHARED_ROW,
    Experiment,
    Role,
    only_text,
    path,
    quoted,
    split,
    written,
)
from embexp.specs.tasks import Labels

_MANY_TEXTS = 20_000
_DELIMITERS = {"text": "\t", "csv": ",", "parquet": ",", "jsonl": ","}
"""The delimiters that `data=text` accepts without `data.delimiter`, by the kind of the sample."""


def lines(experiment: Experiment) -> list[str] | None:
    """All but the head of an experiment that classifies texts; None: there is more to predict from, or other labels."""
    sample = experiment.sample
    texts = only_text(experiment.uses) if sample.holds_texts else None  # and data=text reads the file
    if texts is None or experiment.labels is not Labels.CLASS:
        return None
    [label] = experiment.columns(Role.LABEL)
    own = [] if sample.begins_with_labels else [f"  text: {quoted(texts.name)}", f"  label: {quoted(label.name)}"]
    return [
        "defaults:",
        "  - override /data: text",
        "  - override /graph: null              # the table of words is below",
        "  - override /model: bag_of_words  # model=text_cnn needs data.ngrams=1 features.words.max_sequence_length=64",
        "  - override /optimizer: adam",
        "  - override /dense_optimizer: adam",
        "",
        f"name: {experiment.name}",
        "task: classification",
        "data:",
        f"  path: {path(sample)}",
        *own,
        *written(sample, _DELIMITERS[sample.kind]),
        *split([], by_time=False),
        '  # Words and punctuation marks, and pairs of neighbours, such as "not good".',
        "  words: punctuation",
        "  ngrams: 2",
        *(SHARED_ROW if sample.rows >= _MANY_TEXTS else ()),
        "tables:",
        "  # The sum of a text's vectors is divided by the square root of their number.",
        f"  word: {{dim: 64, combiner: sqrtn, {INITIALIZER}}}",
        "features:",
        "  words: {table: word}",
        "train:",
        "  batch_size: 64",
        "  epochs: 30",
        "  # Stops when the validation metric no longer improves, and keeps the best epoch.",
        "  early_stopping: {patience: 3}",
    ]
