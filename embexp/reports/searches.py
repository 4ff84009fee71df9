"""Where searches went: what their `search.json` says, for tables, JSON and the page. Nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embexp.records.folder import finite, json_object
from embexp.reports.record import Record, finite_number, mapping

SEARCH_FILE = "search.json"


def read(records: Sequence[Record]) -> dict[Path, dict[str, Any]]:
    """The content of search.json by the folder of a sweep; none of grids, and of what can't be read."""
    sweeps = {record.directory.parent for record in records if record.directory is not None}
    found = {sweep: json_object(sweep / SEARCH_FILE) for sweep in sorted(sweeps)}
    return {sweep: content for sweep, content in found.items() if _objectives(content)}


def notes(records: Sequence[Record]) -> Iterator[str]:
    """A line for each search that has ended before its time."""
    found = read(records)
    for sweep, content in found.items():
        left, trials, why = content.get("left_out"), content.get("n_trials"), content.get("ended")
        if why and left and isinstance(left, int) and isinstance(trials, int):
            where = f" in {sweep}" if len(found) > 1 else ""
            yield f"the search{where} ended with {trials - left} of {trials} trials, without the other {left}: {why}"


def as_json(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The searches as JSON values: trials with the best so far, parameters, and their importances."""
    return [{"directory": str(sweep), **finite(content)} for sweep, content in read(records).items()]


def for_page(records: Sequence[Record]) -> dict[str, Any] | None:
    """The first search as the scripts of the page read it: pairs, not objects, where keys are the user's; or None."""
    for content in read(records).values():
        importance = mapping(content.get("importance"))
        return {
            "by": "Optuna",
            "metrics": [name for name, _ in _objectives(content)],
            "higher": [name for name, direction in _objectives(content) if direction == "maximize"],
            "seeds": finite_number(content.get("seeds")) or 1,
            "parameters": [_parameter(each) for each in _listed(content.get("parameters"))],
            "evaluator": str(importance.get("evaluator") or ""),
            "fewest": finite_number(importance.get("fewest_trials")),
            "importance": [_pairs(each) for each in _listed(importance.get("by_objective"))],
            "without": [str(name) for name in _listed(importance.get("without"))],
            "trials": [_trial(each) for each in map(mapping, _listed(content.get("trials")))],
        }
    return None


def _objectives(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and directions of the metrics."""
    objectives = [mapping(each) for each in _listed(content.get("objectives"))]
    return [(str(each["metric"]), str(each.get("direction"))) for each in objectives if "metric" in each]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _pairs(numbers: Any) -> list[list[Any]]:
    return [[key, finite_number(value)] for key, value in mapping(numbers).items()]


def _parameter(content: Any) -> dict[str, Any]:
    content = mapping(content)
    choices = content.get("choices")
    return {
        "name": str(content.get("name")),
        "key": str(content.get("key")),
        "log": content.get("log") is True,
        "choices": [str(each) for each in choices] if isinstance(choices, list) else None,
        "when": [[key, [str(text) for text in _listed(texts)]] for key, texts in mapping(content.get("when")).items()],
    }


def _trial(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job": finite_number(content.get("job")),
        "state": str(content.get("state")),
        "params": [[key, str(text)] for key, text in mapping(content.get("params")).items()],
        "values": [finite_number(value) for value in _listed(content.get("values"))],
        "seconds": finite_number(content.get("seconds")),
    }
