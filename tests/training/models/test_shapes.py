from __future__ import annotations

import subprocess
import sys

import pytest

from embexp.fields.columns.specs import DLRM, FM, DCNv2, DeepFM, Dot
from embexp.fields.texts.specs import BagOfWords, TextCNN
from embexp.specs.models import DENSE, MLP, KerasModel, Model, Shapes

DOT = Dot(left=("user",), right=("item",), biases=("user_bias",))
GOOD: dict[str, tuple[int | None, ...]] = {"user": (8,), "item": (8,), "user_bias": (1,)}


@pytest.mark.parametrize(
    ("model", "inputs", "dense_width"),
    [
        (DOT, GOOD, 0),
        (MLP(), {"user": (8,), "words": (5, 3)}, 4),
        (DLRM(), {"user": (8,), "item": (8,)}, 0),
        (DLRM(), {"user": (8,)}, 2),
        (FM(), {"user": (8,), "item": (4,)}, 0),
        (FM(biases=("user_bias",)), GOOD, 3),
        (DeepFM(), {"user": (8,)}, 1),
        (DCNv2(), {"user": (8,), "words": (5, 3)}, 4),
        (KerasModel(function="a:b"), {"words": (None, 3)}, 2),
        (BagOfWords(), {"words": (None, 3), "bag": (4,)}, 2),
        (TextCNN(), {"title": (9, 3), "body": (None, 5), "author": (8,)}, 2),
    ],
    ids=[
        "dot",
        "mlp with a sequence",
        "dlrm",
        "dlrm of one feature and dense ones",
        "fm of several dims",
        "fm with a bias",
        "deepfm of one feature and a dense one",
        "dcn_v2 with a sequence",
        "keras takes anything",
        "bag of words",
        "texts",
    ],
)
def test_inputs_that_fit(model: Model, inputs: Shapes, dense_width: int) -> None:
    assert list(model.input_faults(inputs, dense_width)) == []


@pytest.mark.parametrize(
    ("model", "inputs", "dense_width", "expected"),
    [
        (
            DOT,
            {**GOOD, "usr": (8,)} | {"user": (8,)},
            0,
            "features.usr = unused: every feature must be used, but dot uses only those that its settings name.\n"
            "    add 'usr' to model.left, model.right or model.biases, or remove the feature",
        ),
        (
            Dot(left=("usr",), right=("item", "user"), biases=("user_bias",)),
            GOOD,
            0,
            "model.left = 'usr': this run has no such feature.\n    did you mean 'user'?",
        ),
        (
            Dot(left=("zzzz",), right=("item", "user"), biases=("user_bias",)),
            GOOD,
            0,
            "model.left = 'zzzz': this run has no such feature.\n    the features are item, user, user_bias",
        ),
        (
            DOT,
            {**GOOD, "item": (4,)},
            0,
            "model = dot: the vectors that it multiplies must have the same dim, but they have user 8, item 4.",
        ),
        (
            DOT,
            {**GOOD, "user_bias": (2,)},
            0,
            "model.biases = 'user_bias': a bias has dim 1, but 'user_bias' gives [B, 2].",
        ),
        (
            DOT,
            {**GOOD, "item": (5, 8)},
            0,
            "features.item = a sequence of shape [B, 5, 8]: dot takes one vector per feature.\n"
            "    set features.item.max_sequence_length to 0 and leave output_shape unset, or choose model=mlp",
        ),
        (
            DOT,
            GOOD,
            3,
            "data.dense_features = 3 columns: dot takes no dense features.\n"
            "    remove them, or choose model=mlp or model=dlrm",
        ),
        (
            DLRM(),
            {"user": (8,)},
            0,
            "model = dlrm with a single vector: it needs two vectors that interact: two features, or one feature "
            "and dense features.\n    add a feature, or choose model=mlp",
        ),
        (
            DLRM(),
            {"user": (8,), "item": (4,)},
            0,
            "model = dlrm: the vectors that it multiplies must have the same dim, but they have user 8, item 4.",
        ),
        (
            FM(),
            {"user": (8,)},
            0,
            "model = fm with a single vector: it needs two vectors that interact: two features, or one feature and "
            "dense features; not biases.\n    add a feature, or choose model=mlp",
        ),
        (
            DeepFM(biases=("user_bias",)),
            {"user_bias": (1,)},
            2,
            "model = deepfm without vectors: it needs two vectors that interact: two features, or one feature and "
            "dense features; not biases.\n    add a feature, or choose model=mlp",
        ),
        (
            FM(biases=("user_bais",)),
            GOOD,
            0,
            "model.biases = 'user_bais': this run has no such feature.\n    did you mean 'user_bias'?",
        ),
        (
            FM(biases=("user",)),
            GOOD,
            0,
            "model.biases = 'user': a bias has dim 1, but 'user' gives [B, 8].",
        ),
        (
            DeepFM(),
            {**GOOD, "item": (5, 8)},
            0,
            "features.item = a sequence of shape [B, 5, 8]: deepfm takes one vector per feature.\n"
            "    set features.item.max_sequence_length to 0 and leave output_shape unset, or choose model=mlp",
        ),
        (
            DCNv2(),
            {"words": (None, 3)},
            0,
            "features.words = activations of shape [B, ?, 3]: dcn_v2 concatenates all activations, so their length "
            "must be known.\n    set features.words.max_sequence_length",
        ),
        (
            MLP(),
            {"words": (None, 3)},
            0,
            "features.words = activations of shape [B, ?, 3]: mlp concatenates all activations, so their length must "
            "be known.\n    set features.words.max_sequence_length",
        ),
        (
            TextCNN(),
            {"user": (8,)},
            3,
            "model = text_cnn without a sequence: it needs a sequence of words, but every feature here is one "
            "vector per example.\n    set max_sequence_length of a feature, or choose model=bag_of_words",
        ),
        (
            TextCNN(),
            {"words": (8, 3), "pages": (2, 8, 3)},
            0,
            "features.pages = activations of shape [B, 2, 8, 3]: text_cnn takes a sequence of vectors, or one vector, "
            "per feature.\n    leave features.pages.output_shape unset",
        ),
    ],
    ids=[
        "unused feature",
        "misspelt feature",
        "unknown feature",
        "dims differ",
        "wide bias",
        "sequence",
        "dense features in dot",
        "nothing to interact",
        "dlrm dims differ",
        "nothing to interact in fm",
        "only biases",
        "misspelt bias",
        "wide bias of fm",
        "sequence in deepfm",
        "unknown length in dcn_v2",
        "unknown length",
        "no text",
        "texts of texts",
    ],
)
def test_inputs_that_do_not_fit(model: Model, inputs: Shapes, dense_width: int, expected: str) -> None:
    assert [str(fault) for fault in list(model.input_faults(inputs, dense_width))] == [expected]


def test_a_dot_product_does_not_classify() -> None:
    [fault] = list(DOT.input_faults(GOOD, 0, classes=True))
    assert str(fault) == (
        "model = dot: a product of two vectors is one number, but task classification needs one per class.\n"
        "    choose model=mlp, model=bag_of_words or model=text_cnn, or another task"
    )
    assert list(MLP().input_faults(GOOD, 0, classes=True)) == []


def test_biases_do_not_classify() -> None:
    for model in (FM(), DeepFM(), DCNv2()):
        assert list(model.input_faults(GOOD, 0, classes=True)) == []
    [fault] = list(FM(biases=("user_bias",)).input_faults(GOOD, 0, classes=True))
    assert str(fault) == (
        "model.biases = user_bias: a bias is one number, but task classification needs one per class.\n"
        "    remove them: first-order weights are then linear in the vectors"
    )


def test_all_faults_come_at_once() -> None:
    model = Dot(left=("usr",), right=("item",), biases=("item",))
    paths = [fault.path for fault in list(model.input_faults(GOOD, 1))]
    assert paths == ["model.left", "model.biases", "features.user_bias", "data.dense_features"]


def test_the_dense_input_can_not_be_a_feature() -> None:
    assert not DENSE.replace("_", "").isalnum()


def test_the_checks_before_a_run_import_no_tensorflow() -> None:
    code = "import embexp.specs.models, embexp.system.user_code, sys; print({'tensorflow', 'keras'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
