"""What TensorBoard writes, read by TensorBoard's own readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups, metadata

from embexp.records import inventory
from embexp.reports.tensorboard import TensorBoard
from embexp.reports.tracking import Point, TrackedRun

PARAMETERS = {"optimizer.kind": "adam", "optimizer.learning_rate": 0.01, "seed": 3, "model.bias": True}


def run(directory: Path, **changed: Any) -> TrackedRun:
    settings = {"name": "x", "directory": directory, "run_id": "ab", "parameters": PARAMETERS, "config": "seed: 3\n"}
    return TrackedRun(**settings | changed)


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Scalars of one folder of events."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    return {
        tag: [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
    }


def hparams(directory: Path) -> Any:
    """What the HParams tab shows: the one session group in a folder."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(directory)).Reload()
    provider = MultiplexerDataProvider(multiplexer, str(directory))
    context = backend_context.Context(base_plugin.TBContext(logdir=str(directory), data_provider=provider))
    every = [api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING, api_pb2.STATUS_UNKNOWN]
    request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=9, allowed_statuses=every)
    experiment = context.experiment_from_metadata(
        RequestContext(), "", True, context.hparams_metadata(RequestContext(), ""), []
    )
    request.col_params.extend(api_pb2.ColParams(hparam=info.name) for info in experiment.hparam_infos)
    request.col_params.extend(api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos)
    (group,) = list_session_groups.Handler(RequestContext(), context, "", request).run().session_groups
    return group


def test_events(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "events")
    board.log([Point(10, 1.0, {"train/loss": 0.75})])
    board.log([Point(20, 2.0, {"train/loss": 0.5, "train/examples_per_second": 4096.0, "train/drift/item/mean": 2.0})])
    board.log([Point(20, 2.0, {"validation/auc": 0.75, "validation/loss": 0.625})])
    # Flushed at each event: all is there before the end.
    assert scalars(tmp_path / "events" / "train")["loss"] == [(10, 0.75), (20, 0.5)]
    board.end("completed")
    assert scalars(tmp_path / "events" / "train")["examples_per_second"] == [(20, 4096.0)]
    assert scalars(tmp_path / "events" / "train")["drift/item/mean"] == [(20, 2.0)]
    assert scalars(tmp_path / "events" / "validation") == {"auc": [(20, 0.75)], "loss": [(20, 0.625)]}


def test_the_digest_of_the_inventory_is_beside_what_the_inventory_lists(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "events")
    board.start(run(tmp_path))
    board.log([Point(20, 2.0, {"train/loss": 0.5})])
    board.end("completed")
    digest = inventory.seal(tmp_path)
    board.sealed(digest)
    events = EventAccumulator(str(tmp_path / "events"), size_guidance={"tensors": 0}).Reload()
    assert [tf.make_ndarray(event.tensor_proto).item() for event in events.Tensors("inventory")] == [digest.encode()]
    assert inventory.changes(tmp_path) == ()
    (tmp_path / "summary.json").write_text("{}")
    inventory.seal(tmp_path)
    [change] = inventory.changes(tmp_path)
    assert (change.path.endswith(".inventory"), change.kind.value) == (True, "changed")


@pytest.mark.parametrize(("status", "shown"), [("stopped_early", "STATUS_SUCCESS"), ("failed", "STATUS_FAILURE")])
def test_hyperparameters_and_metrics_by_split(tmp_path: Path, status: str, shown: str) -> None:
    board = TensorBoard(tmp_path / "run" / "events")
    board.start(run(tmp_path / "run"))
    board.log([Point(20, 2.0, {"validation/auc": 0.75})])
    board.log([Point(20, 2.0, {"final/test/auc": 0.5, "final/validation/auc": 0.75})])
    board.end(status)
    group = hparams(tmp_path / "run")
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()}
    assert found == PARAMETERS
    metrics = {(each.name.group, each.name.tag): each.value for each in group.metric_values}
    assert metrics == {("", "final/test/auc"): 0.5, ("", "final/validation/auc"): 0.75, ("validation", "auc"): 0.75}
    assert [api_pb2.Status.Name(session.status) for session in group.sessions] == [shown]


def test_the_config_is_a_block_of_code(tmp_path: Path) -> None:
    config = "name: '<b>```'\ntables:\n  item: {}\n"
    board = TensorBoard(tmp_path)
    board.start(run(tmp_path, config=config))
    board.log([])
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"
    (event,) = events.Tensors("config")
    text = tf.make_ndarray(event.tensor_proto).item().decode()
    assert text == "    name: '<b>```'\n    tables:\n      item: {}\n"


def test_a_resumed_run_shows_the_config_of_each_part_and_its_hyperparameters_once(tmp_path: Path) -> None:
    for first_step, config in ((0, "steps: 10\n"), (10, "steps: 20\n")):
        board = TensorBoard(tmp_path)
        board.start(run(tmp_path, config=config, first_step=first_step))
        board.log([])
    events = EventAccumulator(str(tmp_path)).Reload()
    texts = {event.step: tf.make_ndarray(event.tensor_proto).item().decode() for event in events.Tensors("config")}
    assert texts == {0: "    steps: 10\n", 10: "    steps: 20\n"}
    assert len(events.Tensors(metadata.SESSION_START_INFO_TAG)) == 1


def test_a_value_beyond_float32_is_infinite(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "events")
    board.log([Point(1, 0.0, {"validation/loss": 1e66})])
    board.end("failed")
    assert scalars(tmp_path / "events" / "validation") == {"loss": [(1, float("inf"))]}
