// What a host makes of a chip's ids for its SparseCores: see `strategies/simulation/sparse_core_inputs.py`, of which
// this is the usual case in one pass. Whatever that would refuse, drop or divide into minibatches is left to it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace embexp {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int32_t kPadding = std::numeric_limits<int32_t>::max();
constexpr int64_t kAlignment = 8;
constexpr int kDigit = 11;  // bits of a key by which places are sorted at once

// The features of a stacked table come in the order of their tables. `limits` are the ids and the distinct ids of a
// SparseCore in a partition, and the places and the blocks of pointers that a chip has.
REGISTER_OP("EmbexpPackForSparseCores")
    .Input("places: F * int32")
    .Input("ids: F * int32")
    .Input("weights: F * float")
    .Output("packed: bool")
    .Output("pointers: int32")
    .Output("samples: int32")
    .Output("rows: int32")
    .Output("gains: float")
    .Output("used_pointers: int32")
    .Output("used_places: int32")
    .Output("minibatches: int32")
    .Attr("F: int >= 1")
    .Attr("combiners: list(string)")
    .Attr("sample_counts: list(int)")
    .Attr("sample_offsets: list(int)")
    .Attr("row_offsets: list(int)")
    .Attr("rotations: list(int)")
    .Attr("cores: int >= 1")
    .Attr("partitions: int >= 1")
    .Attr("samples_of_core: int >= 1")
    .Attr("limits: list(int)")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

int64_t Aligned(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

struct Occurrence {
  int32_t sample, row, table;
  float gain;
};

class PackForSparseCores : public tensorflow::OpKernel {
 public:
  explicit PackForSparseCores(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("combiners", &combiners_));
    OP_REQUIRES_OK(context, context->GetAttr("sample_counts", &sample_counts_));
    OP_REQUIRES_OK(context, context->GetAttr("sample_offsets", &sample_offsets_));
    OP_REQUIRES_OK(context, context->GetAttr("row_offsets", &row_offsets_));
    OP_REQUIRES_OK(context, context->GetAttr("rotations", &rotations_));
    OP_REQUIRES_OK(context, context->GetAttr("cores", &cores_));
    OP_REQUIRES_OK(context, context->GetAttr("partitions", &partitions_));
    OP_REQUIRES_OK(context, context->GetAttr("samples_of_core", &samples_of_core_));
    OP_REQUIRES_OK(context, context->GetAttr("limits", &limits_));
    while ((int64_t{2} << bits_) <= partitions_) ++bits_;
  }

  void Compute(OpKernelContext* context) override {
    OpInputList places, ids, weights;
    OP_REQUIRES_OK(context, context->input_list("places", &places));
    OP_REQUIRES_OK(context, context->input_list("ids", &ids));
    OP_REQUIRES_OK(context, context->input_list("weights", &weights));
    const int64_t capacity = limits_[2], width = Aligned(partitions_);
    Tensor *packed, *memory[4], *sizes[3];
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &packed));
    for (int n = 0; n < 4; ++n) {
      const int64_t size = n == 0 ? limits_[3] * width : capacity;
      OP_REQUIRES_OK(context, context->allocate_output(1 + n, TensorShape({size}), &memory[n]));
    }
    for (int n = 0; n < 3; ++n) {
      OP_REQUIRES_OK(context, context->allocate_output(5 + n, TensorShape({}), &sizes[n]));
      sizes[n]->scalar<int32_t>()() = 0;
    }
    int32_t* to[3] = {memory[0]->flat<int32_t>().data(), memory[1]->flat<int32_t>().data(),
                      memory[2]->flat<int32_t>().data()};
    float* gains = memory[3]->flat<float>().data();
    bool& done = packed->scalar<bool>()();
    done = false;
    // All that is not written below, and each place once.
    std::vector<std::vector<Occurrence>> of_core(cores_);
    for (int f = 0; f < ids.size(); ++f) {
      if (!Read(f, places[f], ids[f], weights[f], &of_core)) return;
    }
    if (capacity % kAlignment != 0 || limits_[3] < cores_) return;
    std::fill_n(to[0], memory[0]->NumElements(), kPadding);
    int64_t at = 0;
    const auto pad = [&](int64_t end) {
      for (; at < end; ++at) {
        to[1][at] = to[2][at] = kPadding;
        gains[at] = static_cast<float>(kPadding);
      }
    };
    for (int64_t core = 0; core < cores_; ++core) {
      std::vector<Occurrence>& own = of_core[core];
      Sort(&own);
      size_t n = 0;
      for (int64_t partition = 0; partition < partitions_; ++partition) {
        const int64_t begin = at;
        int64_t distinct = 0;
        for (size_t first = n; n < own.size() && (own[n].row & (partitions_ - 1)) == partition;) {
          const Occurrence& one = own[n];
          const bool seen = n > first && own[n - 1].row == one.row && own[n - 1].table == one.table;
          distinct += !seen;
          double sum = one.gain;
          for (++n; n < own.size() && own[n].row == one.row && own[n].sample == one.sample &&
                    own[n].table == one.table; ++n) {
            sum += own[n].gain;
          }
          if (at >= capacity) return;
          to[1][at] = static_cast<int32_t>(one.sample % samples_of_core_);
          to[2][at] = one.row >> bits_;
          gains[at++] = static_cast<float>(sum);
        }
        if (at - begin > limits_[0] || distinct > limits_[1]) return;
        to[0][core * width + partition] = static_cast<int32_t>(at);
        pad(std::min(Aligned(at), capacity));
      }
      std::fill(to[0] + core * width + partitions_, to[0] + (core + 1) * width, static_cast<int32_t>(at));
    }
    sizes[0]->scalar<int32_t>()() = static_cast<int32_t>(cores_ * width);
    sizes[1]->scalar<int32_t>()() = static_cast<int32_t>(at);
    sizes[2]->scalar<int32_t>()() = 1;
    pad(capacity);
    done = true;
  }

 private:
  // Adds the occurrences of a feature; false: it is not the usual case.
  bool Read(int f, const Tensor& places_of, const Tensor& ids_of, const Tensor& weights_of,
            std::vector<std::vector<Occurrence>>* of_core) {
    const int64_t samples = sample_counts_[f], count = ids_of.NumElements(), weights = weights_of.NumElements();
    if (samples % cores_ != 0 || (partitions_ & (partitions_ - 1)) != 0) return false;
    if (ids_of.dims() != 1 || weights_of.dims() > 1 || (weights != 1 && weights != count)) return false;
    const int32_t* ids = ids_of.flat<int32_t>().data();
    const int32_t* places = places_of.flat<int32_t>().data();
    const float* weight = weights_of.flat<float>().data();
    const bool sparse = places_of.dims() == 2, ragged = !sparse && places_of.NumElements() > 0;
    if (sparse && (places_of.dim_size(1) != 2 || places_of.dim_size(0) != count)) return false;
    if (ragged && (places_of.NumElements() != samples + 1 || places[0] != 0 || places[samples] != count)) return false;
    if (!sparse && !ragged && count != 0 && count != samples) return false;
    const std::string& combiner = combiners_[f];
    if (combiner != "sum" && combiner != "mean" && combiner != "sqrtn") return false;
    const int64_t share = samples / cores_, low = partitions_ - 1;
    std::vector<float> gains;
    int64_t n = 0, before = -1;
    while (n < count) {
      // The occurrences n to end - 1 of a sample.
      int64_t sample = n, end = n + 1;
      if (sparse) {
        sample = places[2 * n];
        while (end < count && places[2 * end] == sample) ++end;
      } else if (ragged) {
        sample = before + 1;
        while (sample < samples && places[sample + 1] == n) ++sample;
        if (sample >= samples || places[sample + 1] < n || places[sample + 1] > count) return false;
        end = places[sample + 1];
      }
      if (sample <= before || sample >= samples) return false;
      before = sample;
      double total = 0;
      for (int64_t k = n; k < end; ++k) {
        const float own = weight[weights == 1 ? 0 : k];
        total += combiner == "mean" ? own : own * own;
      }
      if (combiner == "sqrtn") total = std::sqrt(total);
      const float scale = total == 0 ? 0.0f : static_cast<float>(1.0 / total);
      const int64_t core = sample / share;
      const int64_t stacked = sample % share + sample_offsets_[f] / cores_ + core * samples_of_core_;
      while (n < end) {
        const int64_t id = ids[n];
        double sum = weight[weights == 1 ? 0 : n];
        for (++n; n < end && ids[n] == id; ++n) sum += weight[weights == 1 ? 0 : n];
        const float gain = static_cast<float>(sum);
        const int64_t row = ((id + rotations_[f]) & low) + (id & ~low) + row_offsets_[f];
        if (id < 0 || row > kPadding || stacked > kPadding) return false;
        (*of_core)[core].push_back({static_cast<int32_t>(stacked), static_cast<int32_t>(row), f == 0 ? 0 : Table(f),
                                    combiner == "sum" ? gain : gain * scale});
      }
    }
    return true;
  }

  // The number of a feature's table: features of one follow each other.
  int32_t Table(int f) const {
    int32_t table = 0;
    for (int k = 1; k <= f; ++k) table += row_offsets_[k] != row_offsets_[k - 1];
    return table;
  }

  // By partition, table and row; equal ones stay in their order.
  void Sort(std::vector<Occurrence>* all) const {
    std::vector<Occurrence> other(all->size());
    int64_t largest = 0;
    for (const Occurrence& each : *all) largest = std::max<int64_t>(largest, each.row >> bits_);
    for (int shift = 0; largest >> shift > 0; shift += kDigit) {
      Pass(all, &other, int64_t{1} << kDigit,
           [&](const Occurrence& each) { return each.row >> bits_ >> shift & ((1 << kDigit) - 1); });
    }
    const int64_t tables = Table(static_cast<int>(row_offsets_.size()) - 1) + 1;
    Pass(all, &other, partitions_ * tables,
         [&](const Occurrence& each) { return (each.row & (partitions_ - 1)) * tables + each.table; });
  }

  template <typename KeyOf>
  static void Pass(std::vector<Occurrence>* all, std::vector<Occurrence>* other, int64_t keys, const KeyOf& key_of) {
    std::vector<int64_t> starts(keys + 1, 0);
    for (const Occurrence& each : *all) ++starts[key_of(each) + 1];
    for (int64_t k = 1; k <= keys; ++k) starts[k] += starts[k - 1];
    for (const Occurrence& each : *all) (*other)[starts[key_of(each)]++] = each;
    all->swap(*other);
  }

  std::vector<std::string> combiners_;
  std::vector<int64_t> sample_counts_, sample_offsets_, row_offsets_, rotations_, limits_;
  int64_t cores_, partitions_, samples_of_core_;
  int bits_ = 0;  // of the number of partitions, a power of two
};

REGISTER_KERNEL_BUILDER(Name("EmbexpPackForSparseCores").Device(tensorflow::DEVICE_CPU), PackForSparseCores);

}  // namespace embexp
