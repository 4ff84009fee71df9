"""Texts: those with labels, and pairs of words, of which word vectors are made."""

from embexp.specs.fields import Field

FIELD = Field(name="texts", described="labelled texts, and word vectors")
