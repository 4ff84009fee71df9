"""From the owners' files to those that sources read: small archives of their form, compared with what RecBole makes."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from embexp.data import datasets as forms
from embexp.errors import DataError
from tests.small_data_sets import tarred

INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
ITEM = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
USER = "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"


def packed(path: Path, members: Mapping[str, str], encoding: str = "utf-8") -> dict[str, Path]:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text.encode(encoding))
    return {path.name: path}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_ml_100k_is_written_as_recbole_has_it(tmp_path: Path, out: Path) -> None:
    flags = "|".join("1" if each in ("Animation", "Children's", "Comedy") else "0" for each in forms._GENRES)
    none = "|".join("1" if each == "unknown" else "0" for each in forms._GENRES)
    members = {
        "ml-100k/u.data": "196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
        "ml-100k/u.item": f"1|Toy Story (1995)|01-Jan-1995||http://x|{flags}\n"
        f"543|Misérables, Les (1995)|01-Jan-1995||http://x|{flags}\n267|unknown||||{none}\n",
        "ml-100k/u.user": "1|24|M|technician|85711\n",
        "../outside": "no member has a say in where it is written",
        "ml-100k/README": "",
    }
    forms.movielens("ml-100k", forms.ML_100K, packed(tmp_path / "a.zip", members, "latin-1"), out)
    assert read(out) == {
        "ml-100k.inter": INTER + "196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
        "ml-100k.item": ITEM + "1\tToy Story\t1995\tAnimation Children's Comedy\n"
        "543\tMisérables, Les\t1995\tAnimation Children's Comedy\n267\tunknown\t\tunknown\n",
        "ml-100k.user": USER + "1\t24\tM\ttechnician\t85711\n",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "out"]


def test_ml_1m(tmp_path: Path, out: Path) -> None:
    members = {
        "ml-1m/ratings.dat": "1::1193::5::978300760\n2::661::3::978302109\n",
        "ml-1m/movies.dat": "1::Toy Story (1995)::Animation|Comedy\n2::Café: the Film (1942)::Drama\n",
        "ml-1m/users.dat": "1::F::1::10::48067\n",
    }
    forms.movielens("ml-1m", forms.ML_1M, packed(tmp_path / "a.zip", members, "latin-1"), out)
    assert read(out) == {
        "ml-1m.inter": INTER + "1\t1193\t5\t978300760\n2\t661\t3\t978302109\n",
        "ml-1m.item": ITEM + "1\tToy Story\t1995\tAnimation Comedy\n2\tCafé: the Film\t1942\tDrama\n",
        "ml-1m.user": USER + "1\t1\tF\t10\t48067\n",
    }


def test_the_larger_ones_are_csv(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratings are read a few at a time; titles may hold commas and quotes."""
    monkeypatch.setattr(forms, "_AT_ONCE", 20)
    ratings = [f"{user},{user * 7},{user % 10 / 2 + 0.5},{1000 + user}" for user in range(50)]
    members = {
        "ml-20m/ratings.csv": "userId,movieId,rating,timestamp\n" + "".join(f"{each}\n" for each in ratings),
        "ml-20m/movies.csv": 'movieId,title,genres\r\n11,"American President, The (1995)",Comedy|Drama\r\n'
        '12,"""Wild"" Ones",(no genres listed)\r\n13,Land III (1995) (V),Animation\r\n',
    }
    forms.movielens("ml-20m", forms.ML_CSV, packed(tmp_path / "a.zip", members), out)
    assert read(out) == {
        "ml-20m.inter": INTER + "".join(each.replace(",", "\t") + "\n" for each in ratings),
        "ml-20m.item": ITEM + '11\tAmerican President, The\t1995\tComedy Drama\n12\t"Wild" Ones\t\t\n'
        "13\tLand III\t1995\tAnimation\n",
    }


def test_a_member_that_is_too_large_is_not_unpacked(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_LARGEST", 100)
    archive = packed(tmp_path / "a.zip", {"ml-1m/ratings.dat": "1::1::1::1\n" * 20})
    with pytest.raises(DataError, match=r"ratings\.dat has 220 bytes, expected at most 100"):
        forms.movielens("ml-1m", forms.ML_1M, archive, out)
    assert read(out) == {}


def test_imdb_is_a_text_a_line(tmp_path: Path, out: Path) -> None:
    """Reviews without a label, links and what else is in the archive are left out; `test` comes last."""
    texts = {
        "test/neg/0_2.txt": "Bad.",
        "test/pos/0_10.txt": "Fine.",
        "train/pos/10_9.txt": "Great,\ttruly.\n",
        "train/pos/2_7.txt": "Good",
        "train/neg/2_1.txt": "Très mauvais",
        "train/unsup/1_0.txt": "nobody knows",
        "train/pos/../../../evil_1.txt": "evil",
        "README": "",
    }
    links = {"aclImdb/train/pos/3_9.txt": "/etc/hostname"}
    (tmp_path / "a.tar.gz").write_bytes(tarred({f"aclImdb/{name}": text for name, text in texts.items()}, links))
    forms.imdb({"a.tar.gz": tmp_path / "a.tar.gz"}, out)
    assert read(out) == {
        "imdb.tsv": "neg\tTrès mauvais\npos\tGood\npos\tGreat, truly.\nneg\tBad.\npos\tFine.\n",
    }


def test_text8_is_divided_as_by_gensim(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = " " + " ".join(f"w{chr(97 + number % 26)}" for number in range(25))
    archive = packed(tmp_path / "a.zip", {"text8": text})
    with pytest.raises(DataError, match="has the md5"):
        forms.text8(archive, out)
    monkeypatch.setattr(forms, "_TEXT8_MD5", hashlib.md5(text.encode()).hexdigest())
    monkeypatch.setattr(forms, "_TEXT8_WORDS", 10)
    forms.text8(archive, out)
    lines = read(out)["text8.txt"].splitlines()
    assert [len(line.split()) for line in lines] == [10, 10, 5]
    assert " ".join(lines) == text.strip()


def test_what_recbole_made_of_ml_100k_comes_out_again(root: Path, tmp_path: Path, out: Path) -> None:
    """Where the real files lie beside the checkout: their owners' form, and back, to the byte."""
    real = root.parent / "shared" / "data" / "ml-100k"
    if not real.is_dir():
        pytest.skip("MovieLens 100K is not beside the checkout (../shared/data/ml-100k)")
    whole = partial(Path.read_text, encoding="utf-8")
    ratings, users = (whole(real / f"ml-100k.{kind}").partition("\n")[2] for kind in ("inter", "user"))
    members = {"ml-100k/u.data": ratings, "ml-100k/u.user": users.replace("\t", "|"), "ml-100k/u.item": ""}
    forms.movielens("ml-100k", forms.ML_100K, packed(tmp_path / "a.zip", members), out)
    assert {kind: (out / f"ml-100k.{kind}").read_bytes() for kind in ("inter", "user")} == {
        kind: (real / f"ml-100k.{kind}").read_bytes() for kind in ("inter", "user")
    }
