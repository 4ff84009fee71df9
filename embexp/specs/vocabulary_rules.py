"""Rules between the vocabulary of a table, its features and the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from embexp.errors import Fault
from embexp.specs.models import Task
from embexp.specs.vocabularies import NOT_OF_HASHES, Row, UnknownPolicy, settled

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec


def of_tokens(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Rules of a table whose rows are not those of tokens."""
    own = spec.tables[name].vocabulary.own
    if own and spec.data.token_rules is None:
        for key, value in own.items():
            rule = f"data={spec.data.kind} has its own vocabularies, and no rules for them"
            yield Fault(_path(name, key), _shown(value), rule, "remove it")
    bucketed = [each for each, feature in spec.features_of(name).items() if feature.buckets.given]
    if own and bucketed:
        for key, value in own.items():
            rule = f"the rows of this table are the buckets of feature {bucketed[0]}"
            yield Fault(_path(name, key), _shown(value), rule, "remove it")


def of_hashes(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Rules that make no sense for hash buckets."""
    own = spec.tables[name].vocabulary.own
    if "hash_buckets" in own:
        for key in NOT_OF_HASHES:
            if key in own:
                rule = "a table of hash_buckets has no vocabulary, and every value has a bucket"
                yield Fault(_path(name, key), _shown(own[key]), rule, "remove one of the two")


def of_recommendation(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Users or items, which are recommended one by one, in hash buckets that several share."""
    if spec.tables[name].vocabulary.hash_buckets is None or spec.task is not Task.RECOMMENDATION:
        return
    for each in (spec.recommendation.user, spec.recommendation.item):
        if each in spec.features and spec.features[each].table == name:
            rule = f"feature {each} needs a row for each of its values, and hash buckets are shared"
            value = str(spec.tables[name].vocabulary.hash_buckets)
            yield Fault(
                _path(name, "hash_buckets"), value, rule, "set it to null, and max_size or min_frequency instead"
            )


def of_oov_buckets(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Several OOV rows where there is none."""
    own, rules = spec.tables[name].vocabulary, spec.data.token_rules
    if rules is None or own.hash_buckets is not None:
        return
    found = settled(rules, [own])
    if found.oov_buckets > 1 and found.unknown is UnknownPolicy.ERROR:
        path = _path(name, "oov_buckets") if own.oov_buckets is not None else "data.vocabulary.oov_buckets"
        rule = "there is no OOV row, as unknown is error"
        yield Fault(path, str(found.oov_buckets), rule, "set unknown to oov, or leave oov_buckets at 1")


def of_buckets(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Buckets of what is no column of single numbers."""
    feature = spec.features[name]
    if not feature.buckets.given:
        return
    path = f"features.{name}.buckets"
    given = "boundaries" if feature.buckets.boundaries is not None else "quantiles"
    if not hasattr(spec.data, "dense_features"):
        yield Fault(
            path, given, f"data={spec.data.kind} has no columns of numbers", "choose data=csv, parquet or recbole"
        )
    if spec.data.holds_one_id(feature.column or name):
        return  # which `one_id` tells of
    for key, value in feature.settings_of_lists().items():
        rule = "a column of numbers in buckets has one number per example, and this setting is for lists of ids"
        yield Fault(f"features.{name}.{key}", value, rule, "leave it out")


def one_kind_of_buckets(spec: RunSpec, name: str) -> Iterator[Fault]:
    """A feature whose table has other buckets, or tokens, by its first feature."""
    feature = spec.features[name]
    first, other = next(iter(spec.features_of(feature.table).items()))
    own, others = feature.buckets, other.buckets
    if (own.boundaries, own.quantiles) != (others.boundaries, others.quantiles):
        rule = f"features of one table have the same buckets, and those of {first} are others"
        yield Fault(f"features.{name}.buckets", _buckets(feature.buckets.model_dump()), rule, "use separate tables")


def rows_of(spec: RunSpec, name: str) -> int | None:
    """Rows of a table where the config sets them, as hash buckets or boundaries do; None: the data decides."""
    own, rules = spec.tables[name].vocabulary, spec.data.token_rules
    if own.hash_buckets is not None and rules is not None:
        return own.hash_buckets + (settled(rules, [own]).missing is Row.OWN_ROW)
    for feature in spec.features_of(name).values():
        if feature.buckets.boundaries is not None:
            return len(feature.buckets.boundaries) + 2
    return None


def _buckets(settings: dict[str, object]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in settings.items() if value is not None) or "none"


def _path(table: str, key: str) -> str:
    return f"tables.{table}.vocabulary.{key}"


def _shown(value: object) -> str:
    return str(value)
