// What the operations on rows share: rows that are asked for, variables that are looked up, ids that are numbered,
// gradients of occurrences.

#ifndef EMBEXP_LOOKUPS_H_
#define EMBEXP_LOOKUPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace embexp {

// Ids, or rows, that are fetched before they are needed.
constexpr int64_t kAhead = 12;
constexpr int64_t kFloatsPerLine = 16;

// Asks for a row that will be read (kWrite = 0) or written (1).
template <int kWrite>
EIGEN_ALWAYS_INLINE void Prefetch(const float* row, int64_t dim) {
  for (int64_t at = 0; at < dim; at += kFloatsPerLine) __builtin_prefetch(row + at, kWrite);
}

inline absl::Status Find(tensorflow::OpKernelContext* context, const tensorflow::Tensor& handle,
                         tensorflow::core::RefCountPtr<tensorflow::Var>* found) {
  return tensorflow::LookupResource(context, handle.scalar<tensorflow::ResourceHandle>()(), found);
}

// The number of each distinct id, by the order of their first occurrence.
template <typename Id>
class Numbering {
 public:
  // For so many occurrences, at most: places are probed one after the other, and at least half of them stay free.
  explicit Numbering(int64_t count) {
    while ((int64_t{1} << bits_) < 2 * count) ++bits_;
    places_.assign(int64_t{1} << bits_, Place{0, -1});
  }
  void Prefetch(Id id) const { __builtin_prefetch(&places_[Hash(id)], 1); }
  // The number of an id; of a new one, `next`.
  EIGEN_ALWAYS_INLINE int32_t Of(Id id, int32_t next) {
    const uint64_t mask = places_.size() - 1;
    uint64_t at = Hash(id);
    while (places_[at].number >= 0 && places_[at].id != id) at = (at + 1) & mask;
    if (places_[at].number < 0) places_[at] = Place{id, next};
    return places_[at].number;
  }

 private:
  struct Place {
    Id id;
    int32_t number;  // -1: the place is free
  };
  uint64_t Hash(Id id) const { return static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u >> (64 - bits_); }
  int bits_ = 4;
  std::vector<Place> places_;
};

// The gradients of all occurrences, which come in parts.
class Gradients {
 public:
  // Those of inputs first to last - 1.
  absl::Status Of(const tensorflow::OpInputList& parts, int first, int last, int64_t count) {
    dim_ = parts[first].dims() == 2 ? parts[first].dim_size(1) : 0;
    for (int p = first; p < last; ++p) {
      const tensorflow::Tensor& part = parts[p];
      if (part.dims() != 2 || part.dim_size(1) != dim_) {
        return absl::InvalidArgumentError("gradients must be matrices of the same width");
      }
      const int64_t before = ends_.empty() ? 0 : ends_.back();
      begins_.push_back(part.flat<float>().data() - before * dim_);
      ends_.push_back(before + part.dim_size(0));
    }
    if (ends_.back() != count) return absl::InvalidArgumentError("the gradients must have a row for each occurrence");
    return absl::OkStatus();
  }
  int64_t dim() const { return dim_; }
  const float* at(int64_t n) const {
    size_t part = 0;
    while (n >= ends_[part]) ++part;
    return begins_[part] + n * dim_;
  }

 private:
  // Row n of all is of part k with ends_[k - 1] <= n < ends_[k]; `begins_[k]` is where its row 0 would be.
  std::vector<int64_t> ends_;
  std::vector<const float*> begins_;
  int64_t dim_ = 0;
};

// The occurrences of each row, in their order: those of row k are order[starts[k]] to order[starts[k + 1] - 1].
struct ByRow {
  std::vector<int32_t> starts, order;

  // From the row of each of some occurrences, whose numbers rise.
  template <typename NumberOf>
  void Fill(int64_t rows, int64_t count, const int32_t* row_of, const NumberOf& number_of) {
    starts.assign(rows + 2, 0);
    order.resize(count);
    for (int64_t n = 0; n < count; ++n) ++starts[row_of[n] + 2];
    for (int64_t k = 2; k < rows + 2; ++k) starts[k] += starts[k - 1];
    for (int64_t n = 0; n < count; ++n) order[starts[row_of[n] + 1]++] = number_of(n);
  }
};

EIGEN_ALWAYS_INLINE bool Outside(int64_t value, int64_t end) {
  return static_cast<uint64_t>(value) >= static_cast<uint64_t>(end);
}

#define EMBEXP_REGISTER(name, kernel)                                                                               \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint<int32_t>("Tid"), kernel<int32_t>); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint<int64_t>("Tid"), kernel<int64_t>)

}  // namespace embexp

#endif  // EMBEXP_LOOKUPS_H_
