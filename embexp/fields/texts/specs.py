"""Sources made of texts: labelled texts, and pairs of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from embexp.errors import Fault
from embexp.specs.base import (
    Count,
    Dim,
    ExampleCount,
    Fraction,
    Length,
    NonNegative,
    Positive,
    Seed,
    different,
    is_null,
    where_known,
)
from embexp.specs.data import (
    UTF8,
    DataSetName,
    Delimiter,
    DividedData,
    Encoding,
    GivenFiles,
    given,
)
from embexp.specs.models import DenseModel, Shapes, Widths, shape_text
from embexp.specs.tasks import Labels
from embexp.specs.vocabularies import VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


MOST_NGRAMS = 5
"""Longer n-grams hardly ever occur twice."""


class Words(StrEnum):
    """What a text that is not split yet is split into, in lower case."""

    LONG = "long"
    """Words of two or more letters, digits or underscores."""
    ALL = "all"
    """Words of one or more of them."""
    PUNCTUATION = "punctuation"
    """These words, and each other character that is no blank."""


class Texts(DividedData):
    """Sources made of texts."""

    fetch: DataSetName | None = None
    """Data set to fetch by name, of which `path` is then the place; null: none."""
    text: str = "text"
    """Column of the text, of CSV, Parquet and JSON Lines; or of its tokens, of lists."""
    token_separator: Annotated[str, Field(min_length=1)] | None = None
    """What stands between the tokens of texts that are split already; null: they are split into words."""
    words: Words = Field(default=Words.LONG, exclude_if=Words.LONG.__eq__)
    """What texts are split into."""
    delimiter: Delimiter | None = Field(default=None, exclude_if=is_null)
    """What stands between a label and its text in a file of lines, or between the columns of CSV, as a character or a
    word (`comma`, `space`, …); null: a tab, or a comma."""
    encoding: Encoding = Field(default=UTF8, exclude_if=UTF8.__eq__)
    """Encoding of the text."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Words of texts that are split already."""
        return where_known(super().faults(spec, scope), self._split_already(scope))

    def _split_already(self, scope: Scope) -> Iterator[Fault]:
        if self.token_separator is not None and self.words is not Words.LONG:
            rule = "with data.token_separator, tokens are taken as they are"
            yield Fault(f"{scope.path}.words", repr(str(self.words)), rule, "remove one of the two")


class Text(Texts):
    """Labelled texts as words. Column `words`: the words of a text in order."""

    kind: Literal["text"] = "text"
    implementation = "embexp.fields.texts.sources:TextSource"
    serving = "embexp.fields.texts.models:signatures"
    path: Annotated[Annotated[str, Field(min_length=1)] | GivenFiles | None, BeforeValidator(given)] = None
    """File or folder of texts, or a mapping of those of train, validation and test; null: the documentation in Python's
    own standard library."""
    label: str = "label"
    """Column of the name of a text's class, of CSV, Parquet and JSON Lines."""
    ngrams: Annotated[Dim, Field(le=MOST_NGRAMS, exclude_if=lambda value: value == 1)] = 1
    """Most words of an n-gram. N-grams are values of `words`, too, behind the words of a text; 1: there are none."""
    max_length: Dim | None = None
    """Only the first words of a text, up to this number; null: all."""
    train_examples: ExampleCount | None = None
    """Number of training examples to use; the vocabulary still comes from the whole training split. null: all."""
    vocabulary: VocabularyRules = VocabularyRules.model_construct()

    @property
    def label_column(self) -> str:
        """Column of the class's number."""
        return self.label

    @property
    def token_rules(self) -> VocabularyRules:
        """How the vocabularies of words are built."""
        return self.vocabulary

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings that belong to another kind of split, and regression of classes."""
        own = (_text_faults(spec), _several_texts(self), self._out_of_order(spec, scope))
        return where_known(super().faults(spec, scope), *own)

    def _out_of_order(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        for name, feature in spec.features.items():
            if self.ngrams > 1 and feature.max_sequence_length:
                rule = f"features.{name} is a sequence of words in order, but n-grams would come after the words"
                remedy = f"set data.ngrams=1, or features.{name}.max_sequence_length=0"
                yield Fault(f"{scope.path}.ngrams", str(self.ngrams), rule, remedy)


class SkipGram(Texts):
    """Pairs of words of texts, for skip-gram with negative sampling (Mikolov et al. 2013).

    Columns: `center`, `context` (they share a vocabulary), label: 1 for two words that occur together, 0 for a
    center with a random word.
    """

    label_column: ClassVar[str] = "together"

    kind: Literal["skipgram"] = "skipgram"
    implementation = "embexp.fields.texts.sources:SkipGramSource"
    path: Annotated[str, Field(min_length=1)] | None = None
    """File or folder of texts; null: the documentation in Python's own standard library."""
    min_count: Count = 5
    """Rarer words are removed from the texts."""
    max_words: Count | None = None
    """Keep only this many of the most frequent words; null: all."""
    context_window: Dim = 10
    """Farthest context on each side; each center draws its own distance from 1 to this."""
    subsample: NonNegative = 3e-4
    """t: an occurrence of a word of frequency f is dropped with probability 1 - sqrt(t / f). 0: none is."""
    negatives: Length = 5
    """Random words drawn for each positive pair."""
    power: NonNegative = 0.75
    """Negatives are drawn with p ~ count ^ power."""
    draws: Annotated[Count, Field(exclude_if=lambda value: value == 1)] = 1
    """How often pairs are drawn from the texts, each time others; an epoch has those of all draws."""
    seed: Seed = 0
    """Seed of all random draws, independent of the run's seed."""


def _text_faults(spec: RunSpec) -> Iterator[Fault]:
    if spec.task.labels is Labels.NUMBER:
        rule = "the labels of data=text are classes, whose numbers have no meaning"
        remedy = "set task=classification, or choose data=csv if the labels are numbers"
        yield Fault("task", str(spec.task), rule, remedy)


def _several_texts(data: Text) -> Iterator[Fault]:
    for name, paths in data.given.items():
        if len(paths) > 1:
            yield Fault(f"data.path.{name}", f"[{', '.join(paths)}]", "the texts of a split are in one file, or folder")


class BagOfWords(DenseModel):
    """The mean of the vectors of each text, with dropout, through a linear layer to the logits."""

    kind: Literal["bag_of_words"] = "bag_of_words"
    implementation = "embexp.fields.texts.models:bag_of_words"
    dropout: Fraction = 0.5
    """Dropout rate of the mean."""


class TextCNN(DenseModel):
    """Convolutions over the words, the maximum of each over the text, a linear layer to the logits (Kim 2014)."""

    kind: Literal["text_cnn"] = "text_cnn"
    implementation = "embexp.fields.texts.models:text_cnn"
    widths: Annotated[
        Widths,
        Field(min_length=1),
        different("the widths must all be different; set maps for more feature maps of each width"),
    ] = (3, 4, 5)
    """Widths of the convolutions in words; one layer for each, all different."""
    maps: Dim = 100
    """Feature maps of each width."""
    dropout: Fraction = 0.5
    """Dropout rate of the maxima."""
    max_norm: Positive | None = 3.0
    """The weights of each logit are scaled down to at most this L2 norm after a step; null: no bound."""

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """The feature maps of its convolutions."""
        return {"model.maps": [self.maps for _ in self.widths]}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """No sequence of words, and features of more dimensions."""
        if not any(len(shape) == 2 for shape in shapes.values()):
            rule = "it needs a sequence of words, but every feature here is one vector per example"
            remedy = "set max_sequence_length of a feature, or choose model=bag_of_words"
            yield Fault("model", "text_cnn without a sequence", rule, remedy)
        for name, shape in shapes.items():
            if len(shape) > 2:
                rule = "text_cnn takes a sequence of vectors, or one vector, per feature"
                remedy = f"leave features.{name}.output_shape unset"
                yield Fault(f"features.{name}", f"activations of shape {shape_text(shape)}", rule, remedy)
