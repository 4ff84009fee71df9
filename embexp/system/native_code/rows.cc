// Rows of tables: the distinct ids of a batch, and rows read, of a table in one variable or in two.
//
// Rows are asked for before they are needed: one that lies anywhere in a large table takes longer to arrive than to use.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "lookups.h"
#include "narrow.h"

namespace embexp {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

// Lines of rows that are fetched before they are needed, and at least 8 rows.
constexpr int64_t kLinesAhead = 40;

REGISTER_OP("EmbexpDistinct")
    .Input("ids: Tid")
    .Output("distinct: Tid")
    .Output("positions: int32")
    .Attr("Tid: {int32, int64}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(tensorflow::shape_inference::InferenceContext::kUnknownDim));
      context->set_output(1, context->input(0));
      return absl::OkStatus();
    });

// With `places`, a row is that of the second variable if its place is at least 0, else row -1 - place of the first.
REGISTER_OP("EmbexpGatherRows")
    .Input("variables: N * resource")
    .Input("ids: Tid")
    .Input("places: P * resource")
    .Output("rows: float")
    .Attr("N: int >= 1")
    .Attr("P: int >= 0")
    .Attr("Tid: {int32, int64}")
    .Attr("subject: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

// The distinct ids, in the order of their first occurrence, and where each occurrence is among them: as `tf.unique`.
template <typename Id>
class FindDistinct : public OpKernel {
 public:
  explicit FindDistinct(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& ids_of = context->input(0);
    const int64_t count = ids_of.NumElements();
    OP_REQUIRES(context, ids_of.dims() == 1 && count < (int64_t{1} << 31),
                absl::InvalidArgumentError("ids must be a vector of fewer than 2^31"));
    Tensor found_of, *positions_of;
    OP_REQUIRES_OK(context, context->allocate_temp(ids_of.dtype(), ids_of.shape(), &found_of));
    OP_REQUIRES_OK(context, context->allocate_output(1, ids_of.shape(), &positions_of));
    const Id* ids = ids_of.template flat<Id>().data();
    Id* found = found_of.template flat<Id>().data();
    int32_t* positions = positions_of->flat<int32_t>().data();

    Numbering<Id> numbering(count);
    int32_t distinct = 0;
    for (int64_t n = 0; n < count; ++n) {
      if (n + kAhead < count) numbering.Prefetch(ids[n + kAhead]);
      positions[n] = numbering.Of(ids[n], distinct);
      if (positions[n] == distinct) found[distinct++] = ids[n];
    }
    context->set_output(0, found_of.Slice(0, distinct));
  }
};

// Rows of a table.
template <typename Id>
class GatherRows : public OpKernel {
 public:
  explicit GatherRows(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("subject", &subject_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::OpInputList handles, places_of, ids_of;
    OP_REQUIRES_OK(context, context->input_list("variables", &handles));
    OP_REQUIRES_OK(context, context->input_list("ids", &ids_of));
    OP_REQUIRES_OK(context, context->input_list("places", &places_of));
    const int parts = handles.size(), variables = parts + places_of.size();
    OP_REQUIRES(context, parts <= 2 && places_of.size() == parts - 1,
                absl::InvalidArgumentError("a table has one variable, or two and places"));
    std::vector<tensorflow::core::RefCountPtr<Var>> found(variables);
    std::vector<tensorflow::tf_shared_lock> locks;
    locks.reserve(variables);
    for (int v = 0; v < variables; ++v) {
      const Tensor& handle = v < parts ? handles[v] : places_of[0];
      OP_REQUIRES_OK(context, Find(context, handle, &found[v]));
      locks.emplace_back(*found[v]->mu());
      OP_REQUIRES(context, found[v]->is_initialized,
                  absl::FailedPreconditionError("a table is not initialized"));
      const Tensor& tensor = *found[v]->tensor();
      OP_REQUIRES(context, v == parts ? tensor.dims() == 1 : IsRowType(tensor.dtype()) && tensor.dims() == 2,
                  absl::FailedPreconditionError("a table is no matrix of floats, or its places no vector"));
      const Tensor& front = *found[0]->tensor();
      OP_REQUIRES(context, v == parts || (tensor.dim_size(1) == front.dim_size(1) && tensor.dtype() == front.dtype()),
                  absl::FailedPreconditionError("both parts of a table must have the same width and type"));
    }
    const Tensor& first = *found[0]->tensor();
    const Tensor* places = parts == 2 ? found[2]->tensor() : nullptr;
    const int64_t rows = places == nullptr ? first.dim_size(0) : places->dim_size(0);
    const int64_t dim = first.dim_size(1), count = ids_of[0].NumElements();
    const Id* ids = ids_of[0].template flat<Id>().data();
    const char* place_bytes = places == nullptr ? nullptr : static_cast<const char*>(places->data());
    const int64_t width = places == nullptr ? 0 : tensorflow::DataTypeSize(places->dtype());
    for (int64_t n = 0; n < count; ++n) {
      const auto id = static_cast<std::make_unsigned_t<Id>>(ids[n]);  // a negative one is huge
      OP_REQUIRES(context, id < static_cast<uint64_t>(rows),
                  absl::InvalidArgumentError(absl::StrCat("[", subject_, "] [", id, "]")));
      if (place_bytes != nullptr) __builtin_prefetch(place_bytes + static_cast<int64_t>(id) * width);
    }
    Tensor* gathered;
    OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape({count, dim}), &gathered));
    float* to = gathered->flat<float>().data();
    const int64_t row_bytes = dim * tensorflow::DataTypeSize(first.dtype());
    const char* base = static_cast<const char*>(first.data());
    if (places == nullptr) {
      Copy(context, count, dim, first.dtype(), to,
           [&](int64_t n) { return base + static_cast<int64_t>(ids[n]) * row_bytes; });
      return;
    }
    const char* second = static_cast<const char*>(found[1]->tensor()->data());
    const auto copy = [&](const auto* place_of) {
      Copy(context, count, dim, first.dtype(), to, [&](int64_t n) {
        const int64_t place = place_of[ids[n]];
        return place < 0 ? base + (-1 - place) * row_bytes : second + place * row_bytes;
      });
    };
    if (places->dtype() == tensorflow::DT_INT32) {
      copy(places->flat<int32_t>().data());
    } else {
      copy(places->flat<int64_t>().data());
    }
  }

 private:
  template <typename RowOf>
  static void Copy(OpKernelContext* context, int64_t count, int64_t dim, tensorflow::DataType type, float* to,
                   const RowOf& row_of) {
    const int64_t ahead = std::max<int64_t>(8, kLinesAhead * kFloatsPerLine / std::max(dim, kFloatsPerLine));
    const int64_t floats = dim * tensorflow::DataTypeSize(type) / sizeof(float);
    const auto work = [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        if (n + ahead < last) Prefetch<0>(reinterpret_cast<const float*>(row_of(n + ahead)), floats);
        Widen(row_of(n), type, dim, to + n * dim);
      }
    };
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, 20 + dim, work);
  }

  std::string subject_;  // of the message of an id outside of the table, see `tables/inputs.py`
};

EMBEXP_REGISTER("EmbexpDistinct", FindDistinct);
EMBEXP_REGISTER("EmbexpGatherRows", GatherRows);

}  // namespace embexp
