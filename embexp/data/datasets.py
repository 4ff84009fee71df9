"""The public data sets that embexp knows by name: where their owners have them, and the digests of their files.

A digest here is one that the owners publish beside the file, or one that a widely used library checks its own downloads
against; the comment at each says which. Nothing is listed whose content changes under the same name.
"""

from __future__ import annotations

from functools import partial

from embexp.data import dataset_forms as forms
from embexp.data.dataset import DataSet, Remote, Write
from embexp.errors import ConfigError, Fault

FORMAT = 1
"""Version of what is made of the owners' files; raised when that changes."""

_RESEARCH = "for research; no redistribution, no commercial use without permission"
_SHARED = "for research; redistribution under the same terms, no commercial use without permission"


def _movielens(name: str, about: str, terms: str, size: int, digest: str, write: Write) -> DataSet:
    return DataSet(
        about=f"MovieLens ratings of films: {about}",
        terms=terms,
        page="https://grouplens.org/datasets/movielens/",
        files=(Remote(f"https://files.grouplens.org/datasets/movielens/{name}.zip", size, digest),),
        kinds=("recbole",),
        experiments=("movielens", "movielens_recommendation"),
        write=write,
    )


def _graph(about: str, terms: str, page: str, files: tuple[Remote, ...], experiments: tuple[str, ...]) -> DataSet:
    return DataSet(about, terms, page, files, ("triples",), experiments, forms.copies)


def _of_pykeen(name: str, *files: tuple[str, int, str]) -> tuple[Remote, ...]:
    base = f"https://raw.githubusercontent.com/pykeen/pykeen/v1.11.1/src/pykeen/datasets/{name}"
    return tuple(
        Remote(f"{base}/{file}", size, f"sha256:{digest}", ("pykeen", f"datasets/{name}/{file}"))
        for file, size, digest in files
    )


_SMALL_GRAPH = ("knowledge_graph", "new_entities")
_PYKEEN = "carried by PyKEEN (MIT), which names the authors"
_PYKEEN_PAGE = "https://pykeen.readthedocs.io/en/stable/reference/datasets.html"
_GRAPHS = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding"
_WN18RR = f"{_GRAPHS}/617062aaedf53bf4d6b44450a580a96dc30e0632/data/wn18rr"
_FB15K_237 = f"{_GRAPHS}/master/data/FB15k-237"

DATA_SETS: dict[str, DataSet] = {
    # GroupLens publishes NAME.zip.md5 beside each archive. The sha256 and the sizes, but for ml-32m, are those of
    # tensorflow_datasets/url_checksums/movielens.txt; ml-32m has the md5 of GroupLens. ml-latest and ml-latest-small
    # change under their names.
    "ml-100k": _movielens(
        "ml-100k",
        "100,000, by 943 users",
        _RESEARCH,
        4_924_029,
        "sha256:50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        partial(forms.movielens, "ml-100k", forms.ML_100K),
    ),
    "ml-1m": _movielens(
        "ml-1m",
        "1 million, by 6,040 users",
        _RESEARCH,
        5_917_549,
        "sha256:a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        partial(forms.movielens, "ml-1m", forms.ML_1M),
    ),
    "ml-20m": _movielens(
        "ml-20m",
        "20 million, by 138,493 users",
        _SHARED,
        198_702_078,
        "sha256:96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
        partial(forms.movielens, "ml-20m", forms.ML_CSV),
    ),
    "ml-25m": _movielens(
        "ml-25m",
        "25 million, by 162,541 users",
        _SHARED,
        261_978_986,
        "sha256:8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
        partial(forms.movielens, "ml-25m", forms.ML_CSV),
    ),
    "ml-32m": _movielens(
        "ml-32m",
        "32 million, by 200,948 users",
        _SHARED,
        238_950_008,
        "md5:d472be332d4daa821edc399621853b57",
        partial(forms.movielens, "ml-32m", forms.ML_CSV),
    ),
    # The digests are those of the RECORD of PyKEEN 1.11.1.
    "kinships": _graph(
        "kinship among 104 people of the Alyawarra, 25 relations",
        _PYKEEN,
        _PYKEEN_PAGE,
        _of_pykeen(
            "kinships",
            ("train.txt", 208_710, "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731"),
            ("valid.txt", 26_088, "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da"),
            ("test.txt", 26_255, "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88"),
        ),
        _SMALL_GRAPH,
    ),
    "nations": _graph(
        "relations of 14 countries, 55 relations",
        _PYKEEN,
        _PYKEEN_PAGE,
        _of_pykeen(
            "nations",
            ("train.txt", 39_101, "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57"),
            ("valid.txt", 4_851, "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530"),
            ("test.txt", 4_951, "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab"),
        ),
        _SMALL_GRAPH,
    ),
    "umls": _graph(
        "concepts of medicine (UMLS), 135 entities, 46 relations",
        _PYKEEN,
        _PYKEEN_PAGE,
        _of_pykeen(
            "umls",
            ("train.txt", 260_013, "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35"),
            ("valid.txt", 32_963, "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e"),
            ("test.txt", 32_968, "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014"),
        ),
        _SMALL_GRAPH,
    ),
    # The md5 of the files are those that AmpliGraph (`load_wn18rr`) and TorchDrug (`WN18RR`) check.
    "wn18rr": _graph(
        "words of WordNet, 40,943 entities, 11 relations",
        "WordNet's licence: free use with its notice",
        "https://wordnet.princeton.edu/license-and-commercial-use",
        (
            Remote(f"{_WN18RR}/train.txt", 3_135_377, "md5:35e81af3ae233327c52a87f23b30ad3c"),
            Remote(f"{_WN18RR}/valid.txt", 110_415, "md5:74a2ee9eca9a8d31f1a7d4d95b5e0887"),
            Remote(f"{_WN18RR}/test.txt", 113_180, "md5:2b45ba1ba436b9d4ff27f1d3511224c9"),
        ),
        ("knowledge_graph_large",),
    ),
    # As for wn18rr (`load_fb15k_237`, `FB15k237`). The size of train.txt is not published: this is a bound, 4% above
    # what its 272,115 lines take if they are as long as those of the others.
    "fb15k-237": _graph(
        "facts of Freebase, 14,541 entities, 237 relations",
        "drawn from Freebase (CC BY) by Toutanova and Chen 2015; see their page",
        "https://www.microsoft.com/en-us/download/details.aspx?id=52312",
        (
            Remote(f"{_FB15K_237}/train.txt", 21_000_000, "md5:c05b87b9ac00f41901e016a2092d7837"),
            Remote(f"{_FB15K_237}/valid.txt", 1_303_101, "md5:6a94efd530e5f43fcf84f50bc6d37b69"),
            Remote(f"{_FB15K_237}/test.txt", 1_519_499, "md5:f5bdf63db39f455dec0ed259bb6f8628"),
        ),
        ("knowledge_graph_large",),
    ),
    # Size and sha256: tensorflow_datasets/url_checksums/imdb_reviews.txt; torchtext checks the md5.
    "imdb": DataSet(
        about="50,000 reviews of films, positive or negative",
        terms="published for research, by Maas et al. 2011; no licence is stated",
        page="https://ai.stanford.edu/~amaas/data/sentiment/",
        files=(
            Remote(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                84_125_825,
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        kinds=("text", "skipgram"),
        experiments=("text_classification", "skipgram"),
        write=forms.imdb,
        path="imdb.tsv",
    ),
    # The size of the archive is that of TensorFlow's word2vec tutorial. Several public projects check this sha256, and
    # Matt Mahoney's page has the md5 of the text, which is checked after unpacking.
    "text8": DataSet(
        about="17 million words of Wikipedia, without labels",
        terms="Wikipedia's text: CC BY-SA",
        page="https://mattmahoney.net/dc/textdata.html",
        files=(
            Remote(
                "https://mattmahoney.net/dc/text8.zip",
                31_344_016,
                "sha256:a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
            ),
        ),
        kinds=("skipgram",),
        experiments=("skipgram",),
        write=forms.text8,
        path="text8.txt",
    ),
}
"""By name."""


def named(name: str) -> DataSet:
    """The data set of a name.

    Raises:
        ConfigError: there is none.
    """
    if name not in DATA_SETS:
        rule = "there is no data set of this name"
        raise ConfigError([Fault("data.fetch", repr(name), rule, f"the data sets are {', '.join(DATA_SETS)}")])
    return DATA_SETS[name]
