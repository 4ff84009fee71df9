// The rows of a training step: the distinct ids of a batch, their rows read, and their rows moved in one pass, which
// sums the gradients of each row, applies the optimizer's rule, and writes the row and its slots in place.
//
// The same bits as TensorFlow's own operations: sums in the order of the occurrences, the rules in the order of
// `optimizers.py` with Eigen's functions for the same packets, and no fused multiply-add (see `native.py`).
//
// Rows are asked for before they are needed: one that lies anywhere in a large table takes longer to arrive than to use.

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace embexp {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

using Packet = Eigen::internal::packet_traits<float>::type;
constexpr int kPacket = Eigen::internal::packet_traits<float>::size;
// Rows that are fetched before they are needed.
constexpr int64_t kAhead = 12;
constexpr int64_t kFloatsPerLine = 16;
// The same where rows are only read: so many lines, and at least 8 rows.
constexpr int64_t kLinesAhead = 40;
// Processor cycles from which on threads share a table's rows: for less, waking them costs more, and tables run side by
// side.
constexpr int64_t kShared = 1'000'000;

REGISTER_OP("EmbexpMoveRows")
    .Input("variables: N * resource")
    .Input("ids: Tid")
    .Input("positions: int32")
    .Input("gradients: M * float")
    .Input("rate: float")
    .Input("touched: K * resource")
    .Attr("N: int >= 1")
    .Attr("M: int >= 1")
    .Attr("K: int >= 0")
    .Attr("Tid: {int32, int64}")
    .Attr("rule: {'sgd', 'adagrad', 'adam'}")
    .Attr("beta_1: float = 0.0")
    .Attr("rest_1: float = 0.0")
    .Attr("beta_2: float = 0.0")
    .Attr("rest_2: float = 0.0")
    .Attr("epsilon: float = 0.0")
    .Attr("from_zero: bool = true")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

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

REGISTER_OP("EmbexpGatherRows")
    .Input("variable: resource")
    .Input("ids: Tid")
    .Output("rows: float")
    .Attr("Tid: {int32, int64}")
    .Attr("subject: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

// The rules, of packets (and, by Eigen's functions for one number, of floats).
struct Sgd {
  static constexpr int kSlots = 0;
  float rate_;
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P g, P& w, P*) const {
    using namespace Eigen::internal;
    w = psub(w, pmul(pset1<P>(rate_), g));
  }
};

struct Adagrad {
  static constexpr int kSlots = 1;
  float rate_;
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P g, P& w, P* slots) const {
    using namespace Eigen::internal;
    slots[0] = padd(slots[0], pmul(g, g));
    w = psub(w, pmul(pmul(pset1<P>(rate_), g), prsqrt(slots[0])));
  }
};

struct Adam {
  static constexpr int kSlots = 2;
  float rate_, beta_1_, rest_1_, beta_2_, rest_2_, epsilon_;
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P g, P& w, P* slots) const {
    using namespace Eigen::internal;
    const P rate = pset1<P>(rate_), beta_1 = pset1<P>(beta_1_), rest_1 = pset1<P>(rest_1_), beta_2 = pset1<P>(beta_2_),
            rest_2 = pset1<P>(rest_2_), epsilon = pset1<P>(epsilon_);
    slots[0] = padd(pmul(beta_1, slots[0]), pmul(rest_1, g));
    slots[1] = padd(pmul(beta_2, slots[1]), pmul(pmul(rest_2, g), g));
    w = psub(w, pmul(pmul(rate, slots[0]), prsqrt(padd(slots[1], epsilon))));
  }
};

// Asks for a row that will be read (kWrite = 0) or written (1).
template <int kWrite>
EIGEN_ALWAYS_INLINE void Prefetch(const float* row, int64_t dim) {
  for (int64_t at = 0; at < dim; at += kFloatsPerLine) __builtin_prefetch(row + at, kWrite);
}

// A variable of which nothing shares the memory, locked.
class Locked {
 public:
  template <typename T>
  static absl::Status Of(OpKernelContext* context, const tensorflow::ResourceHandle& handle, int dims, Locked* found) {
    TF_RETURN_IF_ERROR(tensorflow::LookupResource(context, handle, &found->variable_));
    found->variable_->mu()->lock();
    found->locked_ = true;
    Tensor* tensor = found->variable_->tensor();
    constexpr auto kType = tensorflow::DataTypeToEnum<T>::value;
    if (!found->variable_->is_initialized || tensor->dtype() != kType || tensor->dims() != dims) {
      return absl::FailedPreconditionError("a table, slot or record of touched rows is not initialized, or another");
    }
    if (!found->variable_->copy_on_read_mode.load()) {
      if (!tensor->RefCountIsOne()) {  // somebody holds what was read from it
        Tensor copy;
        TF_RETURN_IF_ERROR(context->allocate_temp(kType, tensor->shape(), &copy));
        std::copy_n(tensor->flat<T>().data(), tensor->NumElements(), copy.flat<T>().data());
        *tensor = copy;
      }
      found->variable_->copy_on_read_mode.store(true);
    }
    return absl::OkStatus();
  }
  ~Locked() {
    if (locked_) variable_->mu()->unlock();
  }
  Tensor* tensor() { return variable_->tensor(); }

 private:
  tensorflow::core::RefCountPtr<Var> variable_;
  bool locked_ = false;
};

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

    // Places are probed one after the other; at least half of them are free (-1).
    int bits = 4;
    while ((int64_t{1} << bits) < 2 * count) ++bits;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    const auto place_of = [&](Id id) { return static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u >> (64 - bits); };
    struct Place {
      Id id;
      int32_t position;
    };
    std::vector<Place> places(mask + 1, Place{0, -1});
    int32_t distinct = 0;
    for (int64_t n = 0; n < count; ++n) {
      if (n + kAhead < count) __builtin_prefetch(&places[place_of(ids[n + kAhead])], 1);
      uint64_t at = place_of(ids[n]);
      while (places[at].position >= 0 && places[at].id != ids[n]) at = (at + 1) & mask;
      if (places[at].position < 0) {
        places[at] = Place{ids[n], distinct};
        found[distinct++] = ids[n];
      }
      positions[n] = places[at].position;
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
    tensorflow::core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(
                                context, context->input(0).template scalar<tensorflow::ResourceHandle>()(), &variable));
    tensorflow::tf_shared_lock lock(*variable->mu());
    const Tensor& table = *variable->tensor();
    OP_REQUIRES(context,
                variable->is_initialized && table.dtype() == tensorflow::DT_FLOAT && table.dims() == 2,
                absl::FailedPreconditionError("a table is not an initialized float32 matrix"));
    const Tensor& ids_of = context->input(1);
    const int64_t count = ids_of.NumElements(), rows = table.dim_size(0), dim = table.dim_size(1);
    const Id* ids = ids_of.template flat<Id>().data();
    for (int64_t n = 0; n < count; ++n) {
      const auto id = static_cast<std::make_unsigned_t<Id>>(ids[n]);  // a negative one is huge
      OP_REQUIRES(context, id < static_cast<uint64_t>(rows),
                  absl::InvalidArgumentError(absl::StrCat("[", subject_, "] [", id, "]")));
    }
    Tensor* gathered;
    OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape({count, dim}), &gathered));
    const float* from = table.flat<float>().data();
    float* to = gathered->flat<float>().data();
    const int64_t ahead = std::max<int64_t>(8, kLinesAhead * kFloatsPerLine / std::max(dim, kFloatsPerLine));
    const auto work = [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        if (n + ahead < last) Prefetch<0>(from + static_cast<int64_t>(ids[n + ahead]) * dim, dim);
        std::copy_n(from + static_cast<int64_t>(ids[n]) * dim, dim, to + n * dim);
      }
    };
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, 20 + dim, work);
  }

 private:
  std::string subject_;  // of the message of an id outside of the table, see `tables/inputs.py`
};

template <typename Id>
class MoveRows : public OpKernel {
 public:
  explicit MoveRows(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rule", &rule_));
    OP_REQUIRES_OK(context, context->GetAttr("beta_1", &beta_1_));
    OP_REQUIRES_OK(context, context->GetAttr("rest_1", &rest_1_));
    OP_REQUIRES_OK(context, context->GetAttr("beta_2", &beta_2_));
    OP_REQUIRES_OK(context, context->GetAttr("rest_2", &rest_2_));
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(context, context->GetAttr("from_zero", &from_zero_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::OpInputList handles, rate_of;
    OP_REQUIRES_OK(context, context->input_list("variables", &handles));
    OP_REQUIRES_OK(context, context->input_list("rate", &rate_of));
    const float rate = rate_of[0].template scalar<float>()();
    if (rule_ == "sgd") {
      Apply(context, handles, Sgd{rate});
    } else if (rule_ == "adagrad") {
      Apply(context, handles, Adagrad{rate});
    } else {
      Apply(context, handles, Adam{rate, beta_1_, rest_1_, beta_2_, rest_2_, epsilon_});
    }
  }

 private:
  // Applies the rule to a packet; `zero` is what the gradient is added to: 0, or -0, which changes nothing.
  template <typename P, typename Rule>
  static EIGEN_ALWAYS_INLINE void Move(const Rule& rule, const float* g, float zero, float* const* moved, int64_t at) {
    using namespace Eigen::internal;
    P w = ploadu<P>(moved[0] + at);
    P slots[Rule::kSlots + 1];
    for (int v = 0; v < Rule::kSlots; ++v) slots[v] = ploadu<P>(moved[v + 1] + at);
    rule(padd(pset1<P>(zero), ploadu<P>(g + at)), w, slots);
    for (int v = 0; v < Rule::kSlots; ++v) pstoreu(moved[v + 1] + at, slots[v]);
    pstoreu(moved[0] + at, w);
  }

  static EIGEN_ALWAYS_INLINE void Add(const float* more, int64_t dim, float* sum) {
    using namespace Eigen::internal;
    int64_t at = 0;
    for (; at + kPacket <= dim; at += kPacket) {
      pstoreu(sum + at, padd(ploadu<Packet>(sum + at), ploadu<Packet>(more + at)));
    }
    for (; at < dim; ++at) sum[at] += more[at];
  }

  template <typename Rule>
  void Apply(OpKernelContext* context, const tensorflow::OpInputList& handles, const Rule& rule) {
    constexpr int kVariables = 1 + Rule::kSlots;
    OP_REQUIRES(context, handles.size() == kVariables, absl::InvalidArgumentError("the rule has other slots"));
    const Tensor& ids_of = context->input(kVariables);
    const Tensor& positions_of = context->input(kVariables + 1);
    tensorflow::OpInputList gradients, touched_of;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    OP_REQUIRES_OK(context, context->input_list("touched", &touched_of));
    const int64_t distinct = ids_of.NumElements(), count = positions_of.NumElements();
    const int64_t dim = gradients[0].dims() == 2 ? gradients[0].dim_size(1) : 0;
    // Row n of all gradients is of part k with ends[k - 1] <= n < ends[k]; `begins[k]` is where its row 0 would be.
    std::vector<int64_t> ends;
    std::vector<const float*> begins;
    for (const Tensor& part : gradients) {
      OP_REQUIRES(context, part.dims() == 2 && part.dim_size(1) == dim,
                  absl::InvalidArgumentError("gradients must be matrices of the same width"));
      const int64_t before = ends.empty() ? 0 : ends.back();
      begins.push_back(part.flat<float>().data() - before * dim);
      ends.push_back(before + part.dim_size(0));
    }
    OP_REQUIRES(context, ends.back() == count,
                absl::InvalidArgumentError("the gradients must have a row for each occurrence"));
    const auto gradient_at = [&](int64_t n) {
      size_t part = 0;
      while (n >= ends[part]) ++part;
      return begins[part] + n * dim;
    };
    Locked locked[kVariables], marks_locked;
    float* base[kVariables];
    int64_t rows = 0;
    for (int v = 0; v < kVariables; ++v) {
      OP_REQUIRES_OK(context,
                     Locked::Of<float>(context, handles[v].template scalar<tensorflow::ResourceHandle>()(), 2, &locked[v]));
      Tensor* tensor = locked[v].tensor();
      if (v == 0) rows = tensor->dim_size(0);
      OP_REQUIRES(context, tensor->dim_size(0) == rows && tensor->dim_size(1) == dim,
                  absl::InvalidArgumentError("table, slots and gradient must have the same width"));
      base[v] = tensor->template flat<float>().data();
    }

    uint8_t* marks = nullptr;
    if (touched_of.size()) {
      const auto& handle = touched_of[0].template scalar<tensorflow::ResourceHandle>()();
      OP_REQUIRES_OK(context, Locked::Of<uint8_t>(context, handle, 1, &marks_locked));
      OP_REQUIRES(context, marks_locked.tensor()->dim_size(0) == rows,
                  absl::InvalidArgumentError("the record of touched rows must have one for each row"));
      marks = marks_locked.tensor()->template flat<uint8_t>().data();
    }

    const Id* ids = ids_of.template flat<Id>().data();
    const int32_t* positions = positions_of.flat<int32_t>().data();
    // The occurrences of each row, in their order: those of row k are order[starts[k]] to order[starts[k + 1] - 1].
    std::vector<int32_t> starts(distinct + 2, 0), order(count);
    for (int64_t n = 0; n < count; ++n) {
      OP_REQUIRES(context, static_cast<uint64_t>(static_cast<int64_t>(positions[n])) < static_cast<uint64_t>(distinct),
                  absl::InvalidArgumentError("a position is outside of the distinct ids"));
      ++starts[positions[n] + 2];
    }
    for (int64_t k = 2; k < distinct + 2; ++k) starts[k] += starts[k - 1];
    for (int64_t n = 0; n < count; ++n) order[starts[positions[n] + 1]++] = static_cast<int32_t>(n);
    for (int64_t k = 0; k < distinct; ++k) {
      OP_REQUIRES(context, static_cast<uint64_t>(static_cast<int64_t>(ids[k])) < static_cast<uint64_t>(rows),
                  absl::InvalidArgumentError("an id is outside of the table"));
    }

    const float zero = from_zero_ ? 0.0f : -0.0f;
    const int64_t packets = distinct * dim / kPacket * kPacket;
    const auto work = [&](int64_t first, int64_t last) {
      std::vector<float> sum(dim);
      for (int64_t k = first; k < last; ++k) {
        if (k + kAhead < last) {
          const int64_t coming = static_cast<int64_t>(ids[k + kAhead]) * dim;
          for (int v = 0; v < kVariables; ++v) Prefetch<1>(base[v] + coming, dim);
        }
        const int32_t begin = starts[k], end = starts[k + 1];
        const float* g = gradient_at(order[begin]);
        if (end - begin > 1) {
          for (int64_t at = 0; at < dim; ++at) sum[at] = zero + g[at];
          for (int32_t n = begin + 1; n < end; ++n) Add(gradient_at(order[n]), dim, sum.data());
          g = sum.data();
        }
        if (marks != nullptr) marks[ids[k]] = 1;
        const int64_t row = static_cast<int64_t>(ids[k]) * dim;
        float* moved[kVariables];
        for (int v = 0; v < kVariables; ++v) moved[v] = base[v] + row;
        // TensorFlow's operations see all rows as one array: packets of it, and what is left as single numbers.
        const int64_t in_packets = std::clamp<int64_t>(packets - k * dim, 0, dim);
        int64_t at = 0;
        for (; at + kPacket <= in_packets; at += kPacket) Move<Packet>(rule, g, zero, moved, at);
        if (at < in_packets) {  // a part of a packet, filled with zeros
          float padded[kVariables + 1][kPacket] = {};
          float* parts[kVariables];
          for (int v = 0; v < kVariables; ++v) std::copy(moved[v] + at, moved[v] + in_packets, parts[v] = padded[v]);
          std::copy(g + at, g + in_packets, padded[kVariables]);
          Move<Packet>(rule, padded[kVariables], zero, parts, 0);
          for (int v = 0; v < kVariables; ++v) std::copy_n(padded[v], in_packets - at, moved[v] + at);
        }
        for (at = in_packets; at < dim; ++at) Move<float>(rule, g, zero, moved, at);
      }
    };
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    const int64_t cycles = 100 * kVariables + 4 * dim * kVariables + dim * (count / std::max<int64_t>(distinct, 1));
    if (distinct * cycles < kShared) {
      work(0, distinct);
    } else {
      workers->workers->ParallelFor(distinct, cycles, work);
    }
  }

  std::string rule_;
  float beta_1_, rest_1_, beta_2_, rest_2_, epsilon_;
  bool from_zero_;
};

#define EMBEXP_REGISTER(name, kernel)                                                                   \
  REGISTER_KERNEL_BUILDER(Name(name).Device(DEVICE_CPU).TypeConstraint<int32_t>("Tid"), kernel<int32_t>); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(DEVICE_CPU).TypeConstraint<int64_t>("Tid"), kernel<int64_t>)
EMBEXP_REGISTER("EmbexpDistinct", FindDistinct);
EMBEXP_REGISTER("EmbexpGatherRows", GatherRows);
EMBEXP_REGISTER("EmbexpMoveRows", MoveRows);

}  // namespace embexp
