// What the operations on rows share: rows that are asked for, variables that are looked up, ids that are numbered.

#ifndef EMBEXP_LOOKUPS_H_
#define EMBEXP_LOOKUPS_H_

#include <cstdint>
#include <vector>

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

#define EMBEXP_REGISTER(name, kernel)                                                                               \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint<int32_t>("Tid"), kernel<int32_t>); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint<int64_t>("Tid"), kernel<int64_t>)

}  // namespace embexp

#endif  // EMBEXP_LOOKUPS_H_
