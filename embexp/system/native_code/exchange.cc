// Messages of workers on one machine, in memory that their processes share: ids, rows, gradients, and sums.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "lookups.h"
#include "rules.h"
#include "shared_memory.h"

namespace embexp {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr int64_t kLargestChunk = 4 << 20;

// How many ids of a table each worker asks each for. Those of a mirrored table are the same for all.
class Counts {
 public:
  Counts(const int32_t* counts, int workers, bool mirrored) : counts_(counts), workers_(workers), mirrored_(mirrored) {}
  static absl::Status Check(const Tensor& counts, int workers) {
    const bool fits = counts.dims() == 2 && counts.dim_size(0) == workers && counts.dim_size(1) == workers;
    return fits ? absl::OkStatus() : absl::InvalidArgumentError("counts are a square of the workers");
  }
  int64_t Of(int asking, int owner) const { return counts_[asking * workers_ + owner]; }
  // Those that a worker asks for in all.
  int64_t By(int asking) const { return mirrored_ ? Of(asking, 0) : Before(asking, workers_); }
  // Those that a worker is asked for in all.
  int64_t For(int owner) const { return AskedBefore(workers_, owner); }
  // Where those for an owner begin among a worker's.
  int64_t Before(int asking, int owner) const {
    int64_t sum = 0;
    for (int w = 0; w < owner && !mirrored_; ++w) sum += Of(asking, w);
    return sum;
  }
  // Where those of a worker begin among an owner's.
  int64_t AskedBefore(int asking, int owner) const {
    int64_t sum = 0;
    for (int w = 0; w < asking; ++w) sum += Of(w, owner);
    return sum;
  }

 private:
  const int32_t* counts_;
  int workers_;
  bool mirrored_;
};

#define EMBEXP_EXCHANGE(name) \
  REGISTER_OP(name).Attr("file: int").Attr("worker: int").Attr("workers: int >= 2").Attr("kind: int").SetIsStateful()

// `seconds` is a variable that the time of the exchange is added to. As all operations have it, they run in one order.

// Distinct ids of tables go to the owners of their rows, and those of mirrored tables to all. Each worker gets the ids
// that it was asked for, by asking worker, the order in which it has sent its own, and how many each asks each for.
EMBEXP_EXCHANGE("EmbexpExchangeIds")
    .Input("ids: N * Tid")
    .Input("seconds: resource")
    .Output("own: N * Tid")
    .Output("order: N * int32")
    .Output("counts: N * int32")  // [workers, workers], by asking worker
    .Attr("N: int >= 1")
    .Attr("Tid: {int32, int64}")
    .Attr("blocks: list(int)")  // of each table, rows of its first blocks, see `partition.py`; 0: it is mirrored
    .Attr("turns: list(int)")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      const int tables = context->num_outputs() / 3;
      int workers;
      TF_RETURN_IF_ERROR(context->GetAttr("workers", &workers));
      for (int t = 0; t < tables; ++t) {
        context->set_output(t, context->Vector(tensorflow::shape_inference::InferenceContext::kUnknownDim));
        context->set_output(tables + t, context->input(t));
        context->set_output(2 * tables + t, context->Matrix(workers, workers));
      }
      return absl::OkStatus();
    });

// The rows that each worker was asked for, in that order, go back; each gets those of its ids.
EMBEXP_EXCHANGE("EmbexpExchangeRows")
    .Input("values: N * float")
    .Input("order: N * int32")
    .Input("counts: N * int32")
    .Input("seconds: resource")
    .Output("rows: N * float")
    .Attr("N: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      const int tables = context->num_outputs();
      for (int t = 0; t < tables; ++t) {
        context->set_output(t, context->Matrix(context->Dim(context->input(tables + t), 0),
                                               context->Dim(context->input(t), 1)));
      }
      return absl::OkStatus();
    });

// The gradients of each worker's occurrences are summed by row, and go to where the ids went: each gets those of the
// ids that it was asked for.
EMBEXP_EXCHANGE("EmbexpExchangeGradients")
    .Input("gradients: M * float")
    .Input("positions: N * int32")  // of each occurrence, among the distinct ids
    .Input("order: N * int32")
    .Input("counts: N * int32")
    .Input("seconds: resource")
    .Output("summed: N * float")
    .Attr("M: int >= 1")
    .Attr("N: int >= 1")
    .Attr("parts: list(int)")       // of each table, how many of the gradients are its
    .Attr("mirrored: list(bool)")
    .Attr("from_zero: list(bool)")  // of each table, whether gradients are added to 0, which makes -0 to 0
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      std::vector<int> parts;
      TF_RETURN_IF_ERROR(context->GetAttr("parts", &parts));
      int first = 0;
      for (int t = 0; t < context->num_outputs(); first += parts[t++]) {
        context->set_output(t, context->Matrix(tensorflow::shape_inference::InferenceContext::kUnknownDim,
                                               context->Dim(context->input(first), 1)));
      }
      return absl::OkStatus();
    });

EMBEXP_EXCHANGE("EmbexpExchangeSums")
    .Input("values: N * T")
    .Input("seconds: resource")
    .Output("sums: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int n = 0; n < context->num_outputs(); ++n) context->set_output(n, context->input(n));
      return absl::OkStatus();
    });

class Exchange : public OpKernel {
 public:
  explicit Exchange(OpKernelConstruction* context) : OpKernel(context) {
    int file;
    OP_REQUIRES_OK(context, context->GetAttr("file", &file));
    OP_REQUIRES_OK(context, context->GetAttr("worker", &worker_));
    OP_REQUIRES_OK(context, context->GetAttr("workers", &workers_));
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind_));
    OP_REQUIRES_OK(context, Memory::Of(file, worker_, workers_, &memory_));
  }

  void Compute(OpKernelContext* context) final {
    const auto start = std::chrono::steady_clock::now();
    Send(context);
    if (!context->status().ok()) return;
    tensorflow::core::RefCountPtr<tensorflow::Var> seconds;
    OP_REQUIRES_OK(context, Find(context, context->input(context->num_inputs() - 1), &seconds));
    tensorflow::mutex_lock lock(*seconds->mu());
    // Never in place: TensorFlow keeps constants of Python numbers, and a variable that began as 0.0 shares that one.
    Tensor sum;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_DOUBLE, {}, &sum));
    sum.scalar<double>()() = seconds->tensor()->scalar<double>()() +
                             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    *seconds->tensor() = sum;
  }

 protected:
  virtual void Send(OpKernelContext* context) = 0;
  int worker_, workers_, kind_;
  Memory* memory_ = nullptr;
};

// Whose rows a table's are: see `partition.py`.
template <typename Id>
class Owners {
 public:
  Owners(int64_t block, int64_t turns, int workers)
      : block_(block), own_(turns * block), all_(own_ * workers), workers_(workers) {}
  EIGEN_ALWAYS_INLINE int32_t Of(Id id, Id* local) const {
    const auto row = static_cast<std::make_unsigned_t<Id>>(id);
    uint64_t start = 0, size = block_;
    if (row >= all_) {
      const int level = 63 - __builtin_clzll(row / all_ + 1);
      start = own_ * ((uint64_t{1} << level) - 1);
      size <<= level;
    }
    const auto within = static_cast<std::make_unsigned_t<Id>>(row - start * workers_);
    const auto block = within >> __builtin_ctzll(size);  // sizes are powers of two
    const auto turn = block / static_cast<std::make_unsigned_t<Id>>(workers_);
    *local = static_cast<Id>(start + turn * size + (within & (size - 1)));
    return static_cast<int32_t>(block - turn * workers_);
  }

 private:
  const uint64_t block_, own_, all_, workers_;
};

template <typename Id>
class ExchangeIds : public Exchange {
 public:
  explicit ExchangeIds(OpKernelConstruction* context) : Exchange(context) {
    OP_REQUIRES_OK(context, context->GetAttr("blocks", &blocks_));
    OP_REQUIRES_OK(context, context->GetAttr("turns", &turns_));
    OP_REQUIRES(context, blocks_.size() == turns_.size(), absl::InvalidArgumentError("each table has its blocks"));
  }
  void Send(OpKernelContext* context) override {
    const int tables = blocks_.size();
    OP_REQUIRES(context, context->num_inputs() == tables + 1, absl::InvalidArgumentError("each table has its blocks"));
    std::vector<std::vector<int32_t>> owners(tables);
    std::vector<std::vector<Id>> local(tables);
    std::vector<int32_t*> order(tables), all(tables);
    std::vector<int32_t> sent(tables * workers_, 0);
    int64_t bytes = Head(tables);
    for (int t = 0; t < tables; ++t) {
      const int64_t count = context->input(t).NumElements();
      const Id* ids = context->input(t).template flat<Id>().data();
      Tensor *order_of, *counts;
      OP_REQUIRES_OK(context, context->allocate_output(tables + t, context->input(t).shape(), &order_of));
      OP_REQUIRES_OK(context, context->allocate_output(
          2 * tables + t, tensorflow::TensorShape({workers_, workers_}), &counts));
      order[t] = order_of->template flat<int32_t>().data();
      all[t] = counts->template flat<int32_t>().data();
      bytes += count * sizeof(Id);
      int32_t* to = sent.data() + t * workers_;
      if (blocks_[t] == 0) {
        for (int64_t n = 0; n < count; ++n) order[t][n] = n;
        std::fill_n(to, workers_, count);
        continue;
      }
      owners[t].resize(count);
      local[t].resize(count);
      const Owners<Id> owners_of(blocks_[t], turns_[t], workers_);
      for (int64_t n = 0; n < count; ++n) ++to[owners[t][n] = owners_of.Of(ids[n], &local[t][n])];
    }
    const auto write = [&](char* box) {
      std::memcpy(box, sent.data(), sent.size() * sizeof(int32_t));
      Id* next = reinterpret_cast<Id*>(box + Head(tables));
      for (int t = 0; t < tables; ++t) {
        const int64_t count = context->input(t).NumElements();
        if (blocks_[t] == 0) {
          std::memcpy(next, context->input(t).data(), count * sizeof(Id));
        } else {
          std::vector<int32_t> starts(workers_, 0);
          for (int w = 1; w < workers_; ++w) starts[w] = starts[w - 1] + sent[t * workers_ + w - 1];
          for (int64_t n = 0; n < count; ++n) {
            const int32_t place = starts[owners[t][n]]++;
            order[t][place] = n;
            next[place] = local[t][n];
          }
        }
        next += count;
      }
    };
    const auto read = [&](const std::vector<const char*>& boxes) -> absl::Status {
      std::vector<const Id*> next(workers_);
      for (int w = 0; w < workers_; ++w) next[w] = reinterpret_cast<const Id*>(boxes[w] + Head(tables));
      for (int t = 0; t < tables; ++t) {
        int64_t asked = 0;
        for (int w = 0; w < workers_; ++w) {
          std::memcpy(all[t] + w * workers_, boxes[w] + t * workers_ * sizeof(int32_t), workers_ * sizeof(int32_t));
          asked += all[t][w * workers_ + worker_];
        }
        Tensor* own;
        TF_RETURN_IF_ERROR(context->allocate_output(t, tensorflow::TensorShape({asked}), &own));
        Id* to = own->template flat<Id>().data();
        const Counts counts(all[t], workers_, blocks_[t] == 0);
        for (int w = 0; w < workers_; ++w) {
          const int64_t count = counts.Of(w, worker_);
          std::memcpy(to, next[w] + counts.Before(w, worker_), count * sizeof(Id));
          to += count;
          next[w] += counts.By(w);
        }
      }
      return absl::OkStatus();
    };
    OP_REQUIRES_OK(context, memory_->Turn(kind_, tables, bytes, write, read));
  }

 private:
  int64_t Head(int64_t tables) const { return (tables * workers_ * sizeof(int32_t) + 7) / 8 * 8; }
  std::vector<int64_t> blocks_, turns_;
};

// Whether an order is one of so many ids.
absl::Status CheckOrder(const Tensor& order, int64_t ids) {
  if (order.NumElements() != ids) return absl::InvalidArgumentError("each id has a place in the order");
  for (int64_t n = 0; n < ids; ++n) {
    if (Outside(order.flat<int32_t>()(n), ids)) return absl::InvalidArgumentError("an id has no place in the order");
  }
  return absl::OkStatus();
}

class ExchangeRows : public Exchange {
 public:
  using Exchange::Exchange;
  void Send(OpKernelContext* context) override {
    OpInputList values, order, counts_of;
    OP_REQUIRES_OK(context, context->input_list("values", &values));
    OP_REQUIRES_OK(context, context->input_list("order", &order));
    OP_REQUIRES_OK(context, context->input_list("counts", &counts_of));
    const int tables = values.size();
    std::vector<Counts> counts;
    std::vector<char*> found(tables);
    int64_t bytes = 0;
    for (int t = 0; t < tables; ++t) {
      OP_REQUIRES_OK(context, Counts::Check(counts_of[t], workers_));
      counts.emplace_back(counts_of[t].flat<int32_t>().data(), workers_, false);
      OP_REQUIRES(context, values[t].dims() == 2 && values[t].dim_size(0) == counts[t].For(worker_),
                  absl::InvalidArgumentError("each id that was asked for has a row"));
      OP_REQUIRES_OK(context, CheckOrder(order[t], counts[t].By(worker_)));
      Tensor* rows;
      OP_REQUIRES_OK(context, context->allocate_output(
          t, tensorflow::TensorShape({counts[t].By(worker_), values[t].dim_size(1)}), &rows));
      found[t] = static_cast<char*>(rows->data());
      bytes += values[t].TotalBytes();
    }
    const auto write = [&](char* box) {
      for (const Tensor& each : values) {
        std::memcpy(box, each.data(), each.TotalBytes());
        box += each.TotalBytes();
      }
    };
    const auto read = [&](std::vector<const char*> boxes) {
      for (int t = 0; t < tables; ++t) {
        const int64_t row = values[t].dim_size(1) * sizeof(float);
        const int32_t* place = order[t].flat<int32_t>().data();
        for (int w = 0; w < workers_; ++w) {
          const int64_t before = counts[t].AskedBefore(worker_, w), count = counts[t].Of(worker_, w);
          for (int64_t n = 0; n < count; ++n)
            std::memcpy(found[t] + *place++ * row, boxes[w] + (before + n) * row, row);
          boxes[w] += counts[t].For(w) * row;
        }
      }
      return absl::OkStatus();
    };
    OP_REQUIRES_OK(context, memory_->Turn(kind_, tables, bytes, write, read));
  }
};

class ExchangeGradients : public Exchange {
 public:
  explicit ExchangeGradients(OpKernelConstruction* context) : Exchange(context) {
    OP_REQUIRES_OK(context, context->GetAttr("parts", &parts_));
    OP_REQUIRES_OK(context, context->GetAttr("mirrored", &mirrored_));
    OP_REQUIRES_OK(context, context->GetAttr("from_zero", &from_zero_));
  }
  void Send(OpKernelContext* context) override {
    OpInputList gradients_of, positions, order, counts_of;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients_of));
    OP_REQUIRES_OK(context, context->input_list("positions", &positions));
    OP_REQUIRES_OK(context, context->input_list("order", &order));
    OP_REQUIRES_OK(context, context->input_list("counts", &counts_of));
    const int tables = positions.size();
    OP_REQUIRES(context, parts_.size() == tables && mirrored_.size() == tables && from_zero_.size() == tables &&
                    std::accumulate(parts_.begin(), parts_.end(), 0) == gradients_of.size(),
                absl::InvalidArgumentError("each table has its gradients"));
    std::vector<Gradients> gradients(tables);
    std::vector<ByRow> by_row(tables);
    std::vector<Counts> counts;
    std::vector<float*> found(tables);
    int64_t bytes = 0;
    for (int t = 0, first = 0; t < tables; first += parts_[t++]) {
      OP_REQUIRES_OK(context, Counts::Check(counts_of[t], workers_));
      counts.emplace_back(counts_of[t].flat<int32_t>().data(), workers_, mirrored_[t]);
      const int64_t occurrences = positions[t].NumElements(), rows = counts[t].By(worker_);
      const int32_t* position = positions[t].flat<int32_t>().data();
      OP_REQUIRES_OK(context, gradients[t].Of(gradients_of, first, first + parts_[t], occurrences));
      OP_REQUIRES_OK(context, CheckOrder(order[t], rows));
      for (int64_t n = 0; n < occurrences; ++n)
        OP_REQUIRES(context, !Outside(position[n], rows),
                    absl::InvalidArgumentError("a position is outside of the distinct ids"));
      by_row[t].Fill(rows, occurrences, position, [](int64_t n) { return static_cast<int32_t>(n); });
      Tensor* summed;
      OP_REQUIRES_OK(context, context->allocate_output(
          t, tensorflow::TensorShape({counts[t].For(worker_), gradients[t].dim()}), &summed));
      found[t] = summed->flat<float>().data();
      bytes += rows * gradients[t].dim() * sizeof(float);
    }
    auto* threads = context->device()->tensorflow_cpu_worker_threads()->workers;
    const auto write = [&](char* box) {
      for (int t = 0; t < tables; ++t) {
        const int64_t dim = gradients[t].dim(), rows = counts[t].By(worker_);
        float* to = reinterpret_cast<float*>(box);
        const auto sum = [&, t](int64_t first, int64_t last) {
          for (int64_t n = first; n < last; ++n) {
            const int64_t k = order[t].flat<int32_t>()(n);
            Sum(gradients[t], by_row[t], k, from_zero_[t], to + n * dim);
          }
        };
        const int64_t of_each = by_row[t].order.size() / std::max<int64_t>(rows, 1) + 1;
        threads->ParallelFor(rows, 20 + dim * of_each, sum);
        box += rows * dim * sizeof(float);
      }
    };
    const auto read = [&](std::vector<const char*> boxes) {
      for (int t = 0; t < tables; ++t) {
        const int64_t row = gradients[t].dim() * sizeof(float);
        char* to = reinterpret_cast<char*>(found[t]);
        for (int w = 0; w < workers_; ++w) {
          const int64_t section = counts[t].Of(w, worker_) * row;
          std::memcpy(to, boxes[w] + counts[t].Before(w, worker_) * row, section);
          to += section;
          boxes[w] += counts[t].By(w) * row;
        }
      }
      return absl::OkStatus();
    };
    OP_REQUIRES_OK(context, memory_->Turn(kind_, tables, bytes, write, read));
  }

 private:
  // The gradient of row k: those of its occurrences, in their order.
  static void Sum(const Gradients& gradients, const ByRow& by_row, int64_t k, bool from_zero, float* to) {
    const int64_t dim = gradients.dim();
    const int32_t begin = by_row.starts[k], end = by_row.starts[k + 1];
    if (begin == end || from_zero) std::fill_n(to, dim, 0.0f);
    if (begin < end && !from_zero) std::memcpy(to, gradients.at(by_row.order[begin]), dim * sizeof(float));
    for (int32_t n = begin + !from_zero; n < end; ++n) Add(gradients.at(by_row.order[n]), dim, to);
  }

  std::vector<int> parts_;
  std::vector<bool> mirrored_, from_zero_;
};

// Adds in the order of TensorFlow's ring: chunk c of all numbers begins at worker c, and goes round.
template <typename T>
class ExchangeSums : public Exchange {
 public:
  using Exchange::Exchange;
  void Send(OpKernelContext* context) override {
    OpInputList values;
    OP_REQUIRES_OK(context, context->input_list("values", &values));
    std::vector<T*> sums(values.size());
    int64_t total = 0;
    for (int n = 0; n < values.size(); ++n) {
      Tensor* each;
      OP_REQUIRES_OK(context, context->allocate_output(n, values[n].shape(), &each));
      sums[n] = each->flat<T>().data();
      total += values[n].NumElements();
    }
    const int64_t bytes = total * sizeof(T), divisions = bytes / workers_ > kLargestChunk ? 2 : 1;
    const int64_t aligned = EIGEN_MAX_ALIGN_BYTES / sizeof(T), pieces = workers_ * divisions;
    const int64_t chunk = ((total + pieces - 1) / pieces + aligned - 1) / aligned * aligned;
    const auto write = [&](char* box) {
      for (const Tensor& each : values) {
        std::memcpy(box, each.data(), each.TotalBytes());
        box += each.TotalBytes();
      }
    };
    const auto read = [&](const std::vector<const char*>& boxes) {
      int64_t start = 0;
      for (int n = 0; n < values.size(); ++n) {
        const int64_t stop = start + values[n].NumElements();
        for (int64_t at = start, end; at < stop; at = end) {
          end = std::min(stop, (at / chunk + 1) * chunk);
          T* to = sums[n] + (at - start);
          const int first = at / chunk / divisions;
          const auto from = [&](int w) { return reinterpret_cast<const T*>(boxes[(first + w) % workers_]) + at; };
          const T *one = from(0), *other = from(1);
          for (int64_t i = 0; i < end - at; ++i) to[i] = one[i] + other[i];
          for (int w = 2; w < workers_; ++w) {
            const T* next = from(w);
            for (int64_t i = 0; i < end - at; ++i) to[i] += next[i];
          }
        }
        start = stop;
      }
      return absl::OkStatus();
    };
    OP_REQUIRES_OK(context, memory_->Turn(kind_, bytes, bytes, write, read));
  }
};

#define EMBEXP_ON_CPU(name) REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU)
EMBEXP_ON_CPU("EmbexpExchangeIds").TypeConstraint<int32_t>("Tid"), ExchangeIds<int32_t>);
EMBEXP_ON_CPU("EmbexpExchangeIds").TypeConstraint<int64_t>("Tid"), ExchangeIds<int64_t>);
EMBEXP_ON_CPU("EmbexpExchangeRows"), ExchangeRows);
EMBEXP_ON_CPU("EmbexpExchangeGradients"), ExchangeGradients);
EMBEXP_ON_CPU("EmbexpExchangeSums").TypeConstraint<float>("T"), ExchangeSums<float>);
EMBEXP_ON_CPU("EmbexpExchangeSums").TypeConstraint<double>("T"), ExchangeSums<double>);

}  // namespace embexp
