"""Every case of TensorFlow's own tests of TPU embeddings and of the host's part of a step, and what becomes of it here.

The originals are the files `tensorflow/python/tpu/tests/*_test.py`, `tensorflow/python/tpu/tpu_embedding_v3_*test.py`
and `tensorflow/python/tpu/tpu_outside_compilation_test.py` of TensorFlow's repository. One `Case` is one of
their test methods with one set of parameters. Tests here take their cases from this list (`original`), the page
docs/tpu_fixtures.md is written from it (`python -m tests.strategies.tpu_fixtures.page`), and test_page.py holds the
three together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import product

import pytest

OPTIMIZERS = ("sgd", "adagrad", "adam", "ftrl", "adagrad_momentum")
OLD_OPTIMIZERS = ("sgd", "adagrad", "adam", "ftrl")


class Outcome(Enum):
    """What becomes of a case here."""

    PASSED = "passed"  # a test of this folder runs it, and it passes
    FAILING = "failing"  # a test of this folder runs it and expects it to fail, for the reason given
    NOT_RUN = "not run"  # no test runs it, for the reason given


@dataclass(frozen=True)
class Case:
    """One method of an original test file with one set of its parameters (`variant`, '' where it has none)."""

    file: str
    test: str
    variant: str = ""
    outcome: Outcome = Outcome.PASSED
    reason: str = ""

    @property
    def name(self) -> str:
        """Names the case in the output of pytest."""
        return f"{self.file}-{self.test}" + (f"-{self.variant}" if self.variant else "")

    @property
    def source(self) -> str:
        """The original's file name."""
        prefix = "tpu" if self.file in ("initialization", "outside_compilation") else "tpu_embedding"
        return f"{prefix}_{self.file}_test.py"


def _all(file: str, test: str, variants: tuple[str, ...] = ("",), **rest: object) -> list[Case]:
    return [Case(file, test, variant, **rest) for variant in variants]  # type: ignore[arg-type]


_CORRECTNESS = [
    case
    for shape, kind, way in product(("", "hd_"), ("sparse", "ragged"), ("forward", "training"))
    for case in _all(f"v2_correctness_{shape}{kind}_{way}", "test_embedding", OPTIMIZERS)
]

CASES: tuple[Case, ...] = (
    *_CORRECTNESS,
    *_all("v2_correctness_dense_lookup", "test_dense_lookup", ("high_dimensional", "flat")),
    *_all("v2_correctness_sequence_feature", "test_sequence_embeddings", ("sparse", "ragged")),
    *_all("v2_sequence_feature", "test_sequence_feature", ("sparse", "ragged")),
    *_all("v2_sequence_feature", "test_sequence_feature_with_build", ("with_length", "without_length")),
    Case("v2_optimizer", "test_unsupported_optimizer"),
    Case("v2_optimizer", "test_variable_learning_rate"),
    Case("v2_optimizer", "test_optimizer_with_slot_creation_fn"),
    Case("v2_optimizer", "test_optimizer_with_slot_creation_fn_non_partial"),
    Case("v2_valid_input", "test_pass_none_to_apply_gradients"),
    Case("v2_valid_input", "test_enqueue_sparse_and_ragged"),
    Case("v2_valid_input", "test_enqueue_per_device"),
    *_all("v2_valid_input", "test_enqueue_with_weights", ("ragged", "sparse")),
    Case("v2_valid_input", "test_same_config_different_instantiations"),
    *_all("v2_valid_input", "test_missing_feature", ("sparse", "ragged")),
    Case("v2_hd_valid_input", "test_enqueue_dense_sparse_ragged"),
    Case("v2_hd_valid_input", "test_different_input_shapes"),
    Case("v2_hd_valid_input", "test_output_shapes_priority_over_feature_config_and_build"),
    Case("v2_invalid_input", "test_tables_with_same_name"),
    Case("v2_invalid_input", "test_pass_non_tensor_to_apply_gradients"),
    Case("v2_invalid_input", "test_enqueue_weight_for_dense_tensor"),
    Case("v2_invalid_input", "test_enqueue_wrong_weight_type_for_sparse_and_ragged_tensor"),
    Case("v2_invalid_input", "test_enqueue_incorrect_structure_for_features_and_weights"),
    Case("v2_invalid_input", "test_enqueue_cpu_tensor"),
    *_all("v2_invalid_input", "test_enqueue_cpu_tensor_with_outside_compilation", ("mlir", "no_mlir")),
    Case("v2_hd_invalid_input", "test_build_incorrect_output_shapes"),
    Case("v2_hd_invalid_input", "test_enqueue_incorrect_shape_feature"),
    Case("v2_hd_invalid_input", "test_not_fully_defined_output_shapes_in_feature_config"),
    Case("v2_hd_invalid_input", "test_not_fully_defined_output_shapes_for_build"),
    *_all("v2_enqueue_mode", "test_enqueue_with_outside_compilation", ("mlir", "no_mlir")),
    *_all("v2_enqueue_mode", "test_enqueue_with_outside_compilation_in_control_flow", ("mlir", "no_mlir")),
    Case("v2_enqueue_mode", "test_enqueue_with_outside_compilation_non_direct_input"),
    Case("v2_enqueue_mode", "test_enqueue_with_outside_compilation_auto_mode"),
    Case("v2_checkpoint", "test_checkpoint_save_retrieves"),
    Case("v2_checkpoint", "test_checkpoint_restore_loads"),
    Case("v2_checkpoint", "test_checkpoint_restore_before_variable_creation"),
    Case("v2_checkpoint", "test_model_export_cpu"),
    *_all("v2_checkpoint", "test_check_checkpoint_variable_names_are_same_on_cpu_and_tpu", OLD_OPTIMIZERS),
    Case("v2_initialization", "test_enqueue_dequeue_apply_gradients_on_cpu"),
    Case("v2_initialization", "test_multiple_creation"),
    Case("v2_initialization", "test_same_config_different_instantiations"),
    Case("v2_initialization", "test_learning_rate_tag_order"),
    *_all("v2_mp_strategy", "test_spmd_training", ("whole", "per_device")),
    *_all(
        "v1_correctness",
        "test_embedding",
        tuple(
            "-".join(parts)
            for parts in product(
                OLD_OPTIMIZERS, ("training", "forward"), ("sparse", "ragged"), ("high_dimensional", "flat")
            )
        ),
    ),
    *_all("v1_correctness", "test_enqueue_with_weights", ("ragged", "sparse")),
    Case("v1_checkpoint", "test_checkpoint_save_and_restore"),
    Case("v1_checkpoint", "test_model_export_cpu"),
    *_all("v1_checkpoint", "test_check_checkpoint_variable_names_are_same_on_cpu_and_tpu", OLD_OPTIMIZERS),
    Case("initialization", "test_tpu_initialization"),
    Case("outside_compilation", "test_host_no_input"),
    Case("outside_compilation", "test_host_input_only"),
    Case("outside_compilation", "test_jit_compile"),
    Case("outside_compilation", "test_host_input_output"),
    Case("outside_compilation", "test_host_multiple_inputs"),
    Case("outside_compilation", "test_multiple_clusters"),
    *_all("outside_compilation", "test_outside_compilation_control_flow_if", ("host", "core")),
    Case("outside_compilation", "test_outside_compilation_control_flow_while"),
    Case("outside_compilation", "test_outside_compilation_host_control_flow"),
    Case("outside_compilation", "test_summary"),
    *_all("outside_compilation", "test_summary_in_cond", ("written", "not_written")),
    Case("outside_compilation", "test_summary_in_while"),
    Case("outside_compilation", "test_outside_compilation_at_head_and_tail"),
    Case("outside_compilation", "test_gradient_across_outside_compilation"),
    Case("outside_compilation", "test_gradient_of_gradient_across_outside_compilation"),
    Case("outside_compilation", "test_colocate_gradient_with_outside_compiled_op"),
    Case("outside_compilation", "test_string_op_with_manual_outside_compilation"),
    Case("outside_compilation", "test_string_op_with_auto_outside_compilation"),
    Case("outside_compilation", "test_image_summary"),
    Case("outside_compilation", "test_summary_with_auto_outside_compilation"),
    Case("outside_compilation", "test_nested_function_scalar_summary"),
    Case("outside_compilation", "test_histogram_summary_with_auto_outside_compilation"),
    *_all(
        "outside_compilation",
        "test_summary_control_flow_if_with_auto_outside_compilation",
        ("written", "not_written"),
    ),
    Case("outside_compilation", "test_auto_outside_compilation_with_functional_nodes"),
    Case("outside_compilation", "test_random_ops_with_auto_outside_compilation"),
    Case("outside_compilation", "test_outside_compilation_with_tpu_partitioned_call_op"),
    Case("v3", "test_single_feature_single_table_lookup_with_static_buffer_size"),
    Case("v3", "test_two_features_single_table_lookup_with_csr_input"),
    Case("v3", "test_two_features_two_tables_stacked_lookup_with_csr_input"),
    Case("v3", "test_embedding_initialization"),
    Case("v3", "test_single_feature_single_table_backwards_pass_with_csr_input"),
    Case("v3", "test_two_feature_single_table_backwards_pass_with_csr_input"),
    Case("v3", "test_two_feature_two_tables_stacked_backwards_pass_with_csr_input"),
    Case("v3", "test_compute_sparse_core_stats_and_pass_it_to_api"),
    Case("v3", "test_raise_error_when_weight_decay_is_set"),
    # Summaries are recorded, enqueue is separate, a predicate decides on recording, the context is sequential.
    *_all(
        "v3", "test_pipelining_and_summary_recording", tuple("-".join(each) for each in product(*[("yes", "no")] * 4))
    ),
    Case("v3_additional", "testSingleTableInitializeAndLookup"),
    Case("v3_additional", "testStackedTableInitializeAndLookup"),
    Case("v3_additional", "testTwoTablesStackedHaveCorrectInitialValues"),
    Case("v3_additional", "testCpuRestoreForNoStackedTables"),
    Case("v3_additional", "testCpuRestoreForStackedTables"),
    Case("v3_additional", "testUnshardedToTpuRestore"),
    Case("v3_checkpoint", "test_checkpoint_save_and_restore"),
    *_all(
        "v3_cpu_ops",
        "test_convert_to_list_of_sparse_core_coo_tensor",
        tuple(
            "-".join(each)
            for each in product(
                ("16", "32"), ("1024", "2048"), ("0", "56", "1600000"), ("0", "12", "20"), ("sum", "mean", "sqrtn")
            )
        ),
    ),
    Case("v3_cpu_ops", "test_convert_to_list_of_sparse_core_coo_tensors"),
    Case("v3_cpu_ops", "test_get_stats_from_list_of_sparse_core_coo_tensors"),
    Case("v3_cpu_ops", "test_sort_list_of_sparse_core_coo_tensors"),
    Case("v3_cpu_ops", "test_id_dropping_with_convert_to_list_of_sparse_core_coo_tensors"),
)


def cases_of(file: str, test: str) -> list[Case]:
    """The cases of one original method, in their order.

    Raises:
        LookupError: The list has no such method.
    """
    found = [case for case in CASES if (case.file, case.test) == (file, test)]
    if not found:
        raise LookupError(f"no case {test} of {file}")
    return found


def original(*methods: tuple[str, str]) -> pytest.MarkDecorator:
    """Parametrises a test with the cases of original methods: `case` is its argument.

    A failing case becomes a strict xfail, so that the list can't say that something fails which passes.
    """
    parameters = []
    for file, test in methods:
        for case in cases_of(file, test):
            if case.outcome is Outcome.NOT_RUN:
                continue
            marks = [pytest.mark.xfail(reason=case.reason, strict=True)] if case.outcome is Outcome.FAILING else []
            parameters.append(pytest.param(case, id=case.name, marks=marks))
    return pytest.mark.parametrize("case", parameters)
