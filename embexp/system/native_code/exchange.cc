// Messages of workers on one machine, in memory that their processes share: parts of ids, rows, and sums.
//
// The memory is a file without a name, made by worker 0 and inherited by the others. Each worker has two boxes, which it
// fills in turn. It begins its turn n + 2 when it has read all of n + 1, so the others have then read its box of turn n.

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "lookups.h"

namespace embexp {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr int64_t kHead = 1 << 20;  // bytes before the boxes, as in `transport.py`
constexpr int kSpins = 500;
constexpr long kWakesAfter = 50'000'000;  // nanoseconds, after which a waiting worker looks whether the run has ended
constexpr int64_t kLargestChunk = 4 << 20;

struct alignas(64) Line {
  std::atomic<uint32_t> value;  // of the first line, whether a worker was lost; of others, the turn that was written
  int64_t kinds[2], bytes[2];   // of what is in the boxes
};

class Memory {
 public:
  static absl::Status Of(int file, int worker, int workers, Memory** found) {
    static std::mutex mutex;
    static std::map<int, Memory*> known;
    std::lock_guard<std::mutex> lock(mutex);
    Memory*& each = known[file];
    if (each == nullptr) {
      struct stat status;
      if (fstat(file, &status) != 0) return absl::InternalError("the shared memory is not open");
      void* base = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
      if (base == MAP_FAILED) return absl::InternalError("the shared memory can't be mapped");
      each = new Memory(static_cast<char*>(base), (status.st_size - kHead) / (2 * workers), worker, workers);
    }
    *found = each;
    return absl::OkStatus();
  }

  // Writes a message into this worker's box, and reads those of all. `kind` and `bytes` must be alike for all.
  template <typename Write, typename Read>
  absl::Status Turn(int64_t kind, int64_t bytes, const Write& write, const Read& read) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > room_) return absl::ResourceExhaustedError(absl::StrCat("a message of ", bytes, " bytes is too long"));
    const uint32_t turn = ++turn_;
    Line& own = line(worker_);
    write(Box(worker_, turn));
    own.kinds[turn & 1] = kind;
    own.bytes[turn & 1] = bytes;
    own.value.store(turn, std::memory_order_release);
    syscall(SYS_futex, &own.value, FUTEX_WAKE, workers_, nullptr, nullptr, 0);
    for (int w = 0; w < workers_; ++w) {
      if (w == worker_) continue;
      if (!Awaited(line(w).value, turn)) return absl::UnavailableError("another worker was lost");
      if (line(w).kinds[turn & 1] != kind || line(w).bytes[turn & 1] != bytes)
        return absl::InternalError(absl::StrCat("worker ", w, " exchanges something else"));
    }
    std::vector<const char*> boxes(workers_);
    for (int w = 0; w < workers_; ++w) boxes[w] = Box(w, turn);
    read(boxes);
    return absl::OkStatus();
  }

 private:
  Memory(char* base, int64_t room, int worker, int workers)
      : base_(base), room_(room), worker_(worker), workers_(workers) {}
  Line& line(int worker) const { return reinterpret_cast<Line*>(base_)[1 + worker]; }
  char* Box(int worker, uint32_t turn) const { return base_ + kHead + (2 * worker + (turn & 1)) * room_; }

  // Whether a worker comes to a turn; not if one was lost.
  bool Awaited(std::atomic<uint32_t>& value, uint32_t turn) const {
    const auto comes = [&](uint32_t now) { return static_cast<int32_t>(now - turn) >= 0; };
    for (int spin = 0; spin < kSpins; ++spin) {
      if (comes(value.load(std::memory_order_acquire))) return true;
    }
    while (true) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (comes(now)) return true;
      if (reinterpret_cast<Line*>(base_)->value.load(std::memory_order_relaxed) != 0) return false;
      const timespec wait{0, kWakesAfter};
      syscall(SYS_futex, &value, FUTEX_WAIT, now, &wait, nullptr, 0);
    }
  }

  char* const base_;
  const int64_t room_;
  const int worker_, workers_;
  uint32_t turn_ = 0;
  std::mutex mutex_;
};

#define EMBEXP_EXCHANGE(name) \
  REGISTER_OP(name).Attr("file: int").Attr("worker: int").Attr("workers: int >= 2").Attr("kind: int").SetIsStateful()

// `seconds` is a variable that the time of the exchange is added to. As all operations have it, they run in one order.
EMBEXP_EXCHANGE("EmbexpExchangeParts")
    .Input("parts: T")  // [workers, n]
    .Input("seconds: resource")
    .Output("received: T")  // [workers, n]
    .Attr("T: {int32, int64}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// Values [n, dim] of each table go to places in parts of [workers, room], and those at other places [m] are returned.
EMBEXP_EXCHANGE("EmbexpExchangeRows")
    .Input("values: N * float")
    .Input("places: N * int32")
    .Input("wanted: N * int32")
    .Input("rooms: int32")
    .Input("seconds: resource")
    .Output("found: N * float")
    .Attr("N: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      const int tables = context->num_outputs();
      for (int t = 0; t < tables; ++t)
        context->set_output(t, context->Matrix(context->Dim(context->input(2 * tables + t), 0),
                                               context->Dim(context->input(t), 1)));
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

class ExchangeParts : public Exchange {
 public:
  using Exchange::Exchange;
  void Send(OpKernelContext* context) override {
    const Tensor& parts = context->input(0);
    OP_REQUIRES(context, parts.dims() == 2 && parts.dim_size(0) == workers_,
                absl::InvalidArgumentError("there is one part for each worker"));
    Tensor* received;
    OP_REQUIRES_OK(context, context->allocate_output(0, parts.shape(), &received));
    const int64_t bytes = parts.TotalBytes(), part = bytes / workers_;
    char* to = static_cast<char*>(received->data());
    OP_REQUIRES_OK(context, memory_->Turn(
        kind_, bytes, [&](char* box) { std::memcpy(box, parts.data(), bytes); },
        [&](const std::vector<const char*>& boxes) {
          for (int w = 0; w < workers_; ++w) std::memcpy(to + w * part, boxes[w] + worker_ * part, part);
        }));
  }
};

class ExchangeRows : public Exchange {
 public:
  using Exchange::Exchange;
  void Send(OpKernelContext* context) override {
    OpInputList values, places, wanted;
    OP_REQUIRES_OK(context, context->input_list("values", &values));
    OP_REQUIRES_OK(context, context->input_list("places", &places));
    OP_REQUIRES_OK(context, context->input_list("wanted", &wanted));
    const Tensor& rooms = context->input(3 * values.size());
    OP_REQUIRES(context, rooms.NumElements() == values.size(), absl::InvalidArgumentError("each table has a room"));
    std::vector<int64_t> starts{0};
    std::vector<Tensor*> found(values.size());
    for (int t = 0; t < values.size(); ++t) {
      const int64_t room = rooms.flat<int32_t>()(t), slots = workers_ * room;
      OP_REQUIRES(context, values[t].dims() == 2 && values[t].dim_size(0) == places[t].NumElements(),
                  absl::InvalidArgumentError("each row has a place"));
      for (const Tensor* each : {&places[t], &wanted[t]}) {
        for (int64_t n = 0; n < each->NumElements(); ++n)
          OP_REQUIRES(context, static_cast<uint32_t>(each->flat<int32_t>()(n)) < slots,
                      absl::InvalidArgumentError("a row has no place"));
      }
      const int64_t dim = values[t].dim_size(1);
      starts.push_back(starts.back() + slots * dim * sizeof(float));
      OP_REQUIRES_OK(context, context->allocate_output(
          t, tensorflow::TensorShape({wanted[t].NumElements(), dim}), &found[t]));
    }
    const auto write = [&](char* box) {
      for (int t = 0; t < values.size(); ++t) {
        const int64_t bytes = values[t].dim_size(1) * sizeof(float);
        const char* from = static_cast<const char*>(values[t].data());
        const int32_t* place = places[t].flat<int32_t>().data();
        for (int64_t n = 0; n < places[t].NumElements(); ++n)
          std::memcpy(box + starts[t] + place[n] * bytes, from + n * bytes, bytes);
      }
    };
    const auto read = [&](const std::vector<const char*>& boxes) {
      for (int t = 0; t < values.size(); ++t) {
        const int64_t bytes = values[t].dim_size(1) * sizeof(float), room = rooms.flat<int32_t>()(t);
        char* to = static_cast<char*>(found[t]->data());
        const int32_t* place = wanted[t].flat<int32_t>().data();
        for (int64_t n = 0; n < wanted[t].NumElements(); ++n) {
          const int64_t from = place[n] / room, within = place[n] % room;
          std::memcpy(to + n * bytes, boxes[from] + starts[t] + (worker_ * room + within) * bytes, bytes);
        }
      }
    };
    OP_REQUIRES_OK(context, memory_->Turn(kind_, starts.back(), write, read));
  }
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
    };
    OP_REQUIRES_OK(context, memory_->Turn(kind_, bytes, write, read));
  }
};

#define EMBEXP_ON_CPU(name) REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU)
EMBEXP_ON_CPU("EmbexpExchangeParts"), ExchangeParts);
EMBEXP_ON_CPU("EmbexpExchangeRows"), ExchangeRows);
EMBEXP_ON_CPU("EmbexpExchangeSums").TypeConstraint<float>("T"), ExchangeSums<float>);
EMBEXP_ON_CPU("EmbexpExchangeSums").TypeConstraint<double>("T"), ExchangeSums<double>);

}  // namespace embexp
