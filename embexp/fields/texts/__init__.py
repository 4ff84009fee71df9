"""Texts: those with labels, and pairs of words, of which word vectors are made."""

from embexp.specs.fields import Field

_SPECS = "embexp.fields.texts.specs"
FIELD = Field(
    name="texts",
    described="labelled texts, and word vectors",
    data={"text": f"{_SPECS}:Text", "skipgram": f"{_SPECS}:SkipGram"},
    models={"bag_of_words": f"{_SPECS}:BagOfWords", "text_cnn": f"{_SPECS}:TextCNN"},
    first_experiment="embexp.fields.texts.first_experiment:lines",
)
