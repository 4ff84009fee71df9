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
using tensorflow::mutex;
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
    .Attr("inside: bool = true")
    .Attr("from_zero: bool = true")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

struct Sgd {
  static constexpr int kSlots = 0;
  Packet rate;
  EIGEN_ALWAYS_INLINE void operator()(Packet g, Packet& w, Packet*) const {
    using namespace Eigen::internal;
    w = psub(w, pmul(rate, g));
  }
};

struct Adagrad {
  static constexpr int kSlots = 1;
  Packet rate;
  EIGEN_ALWAYS_INLINE void operator()(Packet g, Packet& w, Packet* slots) const {
    using namespace Eigen::internal;
    slots[0] = padd(slots[0], pmul(g, g));
    w = psub(w, pmul(pmul(rate, g), prsqrt(slots[0])));
  }
};

struct Adam {
  static constexpr int kSlots = 2;
  Packet rate, beta_1, rest_1, beta_2, rest_2, epsilon;
  bool inside;
  EIGEN_ALWAYS_INLINE void operator()(Packet g, Packet& w, Packet* slots) const {
    using namespace Eigen::internal;
    slots[0] = padd(pmul(beta_1, slots[0]), pmul(rest_1, g));
    slots[1] = padd(pmul(beta_2, slots[1]), pmul(pmul(rest_2, g), g));
    const Packet step = inside ? pmul(slots[0], prsqrt(padd(slots[1], epsilon)))
                               : pdiv(slots[0], padd(psqrt(slots[1]), epsilon));
    w = psub(w, pmul(rate, step));
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
    OP_REQUIRES_OK(context, context->GetAttr("inside", &inside_));
    OP_REQUIRES_OK(context, context->GetAttr("from_zero", &from_zero_));
  }

  void Compute(OpKernelContext* context) override {
    using Eigen::internal::pset1;
    tensorflow::OpInputList handles;
    OP_REQUIRES_OK(context, context->input_list("variables", &handles));
    const Packet rate = pset1<Packet>(context->input(handles.size() + 3).template scalar<float>()());
    if (rule_ == "sgd") {
      Apply(context, handles, Sgd{rate});
    } else if (rule_ == "adagrad") {
      Apply(context, handles, Adagrad{rate});
    } else {
      Apply(context, handles,
            Adam{rate, pset1<Packet>(beta_1_), pset1<Packet>(rest_1_), pset1<Packet>(beta_2_), pset1<Packet>(rest_2_),
                 pset1<Packet>(epsilon_), inside_});
    }
  }

 private:
  template <typename Rule>
  void Apply(OpKernelContext* context, const tensorflow::OpInputList& handles, const Rule& rule) {
    using namespace Eigen::internal;
    constexpr int kVariables = 1 + Rule::kSlots;
    OP_REQUIRES(context, handles.size() == kVariables, absl::InvalidArgumentError("the rule has other slots"));
    const Tensor& ids_of = context->input(kVariables);
    const Tensor& positions_of = context->input(kVariables + 1);
    const Tensor& gradient_of = context->input(kVariables + 2);
    const int64_t distinct = ids_of.NumElements(), count = positions_of.NumElements();
    OP_REQUIRES(context, gradient_of.dims() == 2 && gradient_of.dim_size(0) == count,
                absl::InvalidArgumentError("the gradient must have a row for each occurrence"));
    const int64_t dim = gradient_of.dim_size(1);
    OP_REQUIRES(context, dim % kPacket == 0, absl::InvalidArgumentError("rows must be whole packets"));

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
          const Packet zero = pset1<Packet>(0.0f);
          for (int64_t at = 0; at < dim; at += kPacket) {
            const Packet one = ploadu<Packet>(g + at);
            pstoreu(sum.data() + at, from_zero_ ? padd(zero, one) : one);
          }
          for (int32_t n = begin + 1; n < end; ++n) {
            const float* more = gradient + static_cast<int64_t>(order[n]) * dim;
            for (int64_t at = 0; at < dim; at += kPacket) {
              pstoreu(sum.data() + at, padd(ploadu<Packet>(sum.data() + at), ploadu<Packet>(more + at)));
            }
          }
          g = sum.data();
        }
        const int64_t row = static_cast<int64_t>(ids[k]) * dim;
        for (int64_t at = 0; at < dim; at += kPacket) {
          Packet w = ploadu<Packet>(base[0] + row + at);
          Packet slots[Rule::kSlots + 1];
          for (int v = 0; v < Rule::kSlots; ++v) slots[v] = ploadu<Packet>(base[v + 1] + row + at);
          rule(ploadu<Packet>(g + at), w, slots);
          for (int v = 0; v < Rule::kSlots; ++v) pstoreu(base[v + 1] + row + at, slots[v]);
          pstoreu(base[0] + row + at, w);
        }
      }
    };
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    const int64_t cycles = 100 * kVariables + 4 * dim * kVariables + dim * (count / std::max<int64_t>(distinct, 1));
    workers->workers->ParallelFor(distinct, cycles, work);
  }

  std::string rule_;
  float beta_1_, rest_1_, beta_2_, rest_2_, epsilon_;
  bool inside_, from_zero_;
};

REGISTER_KERNEL_BUILDER(Name("EmbexpMoveRows").Device(DEVICE_CPU).TypeConstraint<int32_t>("Tid"), MoveRows<int32_t>);
REGISTER_KERNEL_BUILDER(Name("EmbexpMoveRows").Device(DEVICE_CPU).TypeConstraint<int64_t>("Tid"), MoveRows<int64_t>);

}  // namespace embexp
