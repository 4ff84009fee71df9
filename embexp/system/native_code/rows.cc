// One pass over the rows that a training step touched: sums the gradients of each row, applies the optimizer's rule,
// and writes the row and its slots in place.
//
// The same bits as TensorFlow's own operations: sums in the order of the occurrences, the rules in the order of
// `optimizers.py` with Eigen's functions for the same packets, and no fused multiply-add (see `native.py`).

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

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

REGISTER_OP("EmbexpMoveRows")
    .Input("variables: N * resource")
    .Input("ids: Tid")
    .Input("positions: int32")
    .Input("gradient: float")
    .Input("rate: float")
    .Attr("N: int >= 1")
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

// A variable of which nothing shares the memory, locked.
class Locked {
 public:
  static absl::Status Of(OpKernelContext* context, const tensorflow::ResourceHandle& handle, Locked* found) {
    TF_RETURN_IF_ERROR(tensorflow::LookupResource(context, handle, &found->variable_));
    found->variable_->mu()->lock();
    found->locked_ = true;
    Tensor* tensor = found->variable_->tensor();
    if (!found->variable_->is_initialized || tensor->dtype() != tensorflow::DT_FLOAT || tensor->dims() != 2) {
      return absl::FailedPreconditionError("a table or slot is not an initialized float32 matrix");
    }
    if (!found->variable_->copy_on_read_mode.load()) {
      if (!tensor->RefCountIsOne()) {  // somebody holds what was read from it
        Tensor copy;
        TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_FLOAT, tensor->shape(), &copy));
        std::copy_n(tensor->flat<float>().data(), tensor->NumElements(), copy.flat<float>().data());
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
    tensorflow::OpInputList handles;
    OP_REQUIRES_OK(context, context->input_list("variables", &handles));
    const float rate = context->input(handles.size() + 3).template scalar<float>()();
    if (rule_ == "sgd") {
      Apply(context, handles, Sgd{rate});
    } else if (rule_ == "adagrad") {
      Apply(context, handles, Adagrad{rate});
    } else {
      Apply(context, handles, Adam{rate, beta_1_, rest_1_, beta_2_, rest_2_, epsilon_});
    }
  }

 private:
  template <typename P, typename Rule>
  static EIGEN_ALWAYS_INLINE void Move(const Rule& rule, const float* g, float* const* moved, int64_t at) {
    using namespace Eigen::internal;
    P w = ploadu<P>(moved[0] + at);
    P slots[Rule::kSlots + 1];
    for (int v = 0; v < Rule::kSlots; ++v) slots[v] = ploadu<P>(moved[v + 1] + at);
    rule(ploadu<P>(g + at), w, slots);
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
    const Tensor& gradient_of = context->input(kVariables + 2);
    const int64_t distinct = ids_of.NumElements(), count = positions_of.NumElements();
    OP_REQUIRES(context, gradient_of.dims() == 2 && gradient_of.dim_size(0) == count,
                absl::InvalidArgumentError("the gradient must have a row for each occurrence"));
    const int64_t dim = gradient_of.dim_size(1);
    Locked locked[kVariables];
    float* base[kVariables];
    int64_t rows = 0;
    for (int v = 0; v < kVariables; ++v) {
      OP_REQUIRES_OK(context,
                     Locked::Of(context, handles[v].template scalar<tensorflow::ResourceHandle>()(), &locked[v]));
      Tensor* tensor = locked[v].tensor();
      if (v == 0) rows = tensor->dim_size(0);
      OP_REQUIRES(context, tensor->dim_size(0) == rows && tensor->dim_size(1) == dim,
                  absl::InvalidArgumentError("table, slots and gradient must have the same width"));
      base[v] = tensor->template flat<float>().data();
    }

    const Id* ids = ids_of.template flat<Id>().data();
    const int32_t* positions = positions_of.flat<int32_t>().data();
    const float* gradient = gradient_of.flat<float>().data();
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

    const int64_t packets = distinct * dim / kPacket * kPacket;
    const auto work = [&](int64_t first, int64_t last) {
      std::vector<float> sum(dim);
      for (int64_t k = first; k < last; ++k) {
        if (k + kAhead < last) {
          const int64_t coming = static_cast<int64_t>(ids[k + kAhead]) * dim;
          for (int v = 0; v < kVariables; ++v) {
            for (int64_t at = 0; at < dim; at += kFloatsPerLine) __builtin_prefetch(base[v] + coming + at, 1);
          }
        }
        const int32_t begin = starts[k], end = starts[k + 1];
        const float* g = gradient + static_cast<int64_t>(order[begin]) * dim;
        if (end - begin > 1 || from_zero_) {
          if (from_zero_) {
            std::fill(sum.begin(), sum.end(), 0.0f);
          } else {
            std::copy_n(g, dim, sum.data());
          }
          for (int32_t n = begin + !from_zero_; n < end; ++n) {
            Add(gradient + static_cast<int64_t>(order[n]) * dim, dim, sum.data());
          }
          g = sum.data();
        }
        const int64_t row = static_cast<int64_t>(ids[k]) * dim;
        float* moved[kVariables];
        for (int v = 0; v < kVariables; ++v) moved[v] = base[v] + row;
        // TensorFlow's operations see all rows as one array: packets of it, and what is left as single numbers.
        const int64_t in_packets = std::clamp<int64_t>(packets - k * dim, 0, dim);
        int64_t at = 0;
        for (; at + kPacket <= in_packets; at += kPacket) Move<Packet>(rule, g, moved, at);
        if (at < in_packets) {  // a part of a packet, filled with zeros
          float padded[kVariables + 1][kPacket] = {};
          float* parts[kVariables];
          for (int v = 0; v < kVariables; ++v) std::copy(moved[v] + at, moved[v] + in_packets, parts[v] = padded[v]);
          std::copy(g + at, g + in_packets, padded[kVariables]);
          Move<Packet>(rule, padded[kVariables], parts, 0);
          for (int v = 0; v < kVariables; ++v) std::copy_n(padded[v], in_packets - at, moved[v] + at);
        }
        for (at = in_packets; at < dim; ++at) Move<float>(rule, g, moved, at);
      }
    };
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    const int64_t cycles = 100 * kVariables + 4 * dim * kVariables + dim * (count / std::max<int64_t>(distinct, 1));
    workers->workers->ParallelFor(distinct, cycles, work);
  }

  std::string rule_;
  float beta_1_, rest_1_, beta_2_, rest_2_, epsilon_;
  bool from_zero_;
};

REGISTER_KERNEL_BUILDER(Name("EmbexpMoveRows").Device(DEVICE_CPU).TypeConstraint<int32_t>("Tid"), MoveRows<int32_t>);
REGISTER_KERNEL_BUILDER(Name("EmbexpMoveRows").Device(DEVICE_CPU).TypeConstraint<int64_t>("Tid"), MoveRows<int64_t>);

}  // namespace embexp
