// The rows of a training step, moved in one pass: the gradients of each row summed and clipped, the row decayed, the
// optimizer's rule applied, and the row and its slots written in place. Frozen rows are passed over.
//
// The same bits as TensorFlow's own operations: sums in the order of the occurrences, the rules in the order of
// `optimizers.py` with Eigen's functions for the same packets, and no fused multiply-add (see `native.py`).
//
// Rows are asked for before they are needed: one that lies anywhere in a large table takes longer to arrive than to use.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "lookups.h"
#include "narrow.h"
#include "rules.h"

namespace embexp {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpInputList;
using tensorflow::Tensor;
using tensorflow::Var;

// Bytes about rows that are fetched before they are needed.
constexpr int64_t kBytesAhead = 32;
// Processor cycles from which on threads share a table's rows: for less, waking them costs more, and tables run side by
// side.
constexpr int64_t kShared = 1'000'000;

REGISTER_OP("EmbexpMoveRows")
    .Input("variables: N * resource")
    // Without groups the distinct ids, and of each occurrence its place among them; with groups the ids of all
    // occurrences, and no positions: most are often frozen, and need no place.
    .Input("ids: Tid")
    .Input("positions: D * int32")
    .Input("gradients: M * float")
    .Input("rate: float")
    .Input("touched: K * resource")
    .Input("groups: G * resource")
    .Input("multipliers: G * float")
    .Input("places: P * resource")
    // The number of the step, for stochastic rounding of rows of 16 bits.
    .Input("step: S * int64")
    // Factors of the weight decay of each row of the table.
    .Input("shares: H * resource")
    // Of each of `ids`, the number that it is rounded by, if not itself: in the table of which this one is a part.
    .Input("numbers: R * int64")
    .Attr("N: int >= 1")
    .Attr("D: int >= 0")
    .Attr("M: int >= 1")
    .Attr("K: int >= 0")
    .Attr("G: int >= 0")
    .Attr("P: int >= 0")
    .Attr("S: int >= 0")
    .Attr("H: int >= 0")
    .Attr("R: int >= 0")
    .Attr("key: list(int) = []")
    .Attr("Tid: {int32, int64}")
    .Attr("rule: {'sgd', 'adagrad', 'rowwise_adagrad', 'adagrad_momentum', 'adam', 'ftrl'}")
    // Of the rule, in the order of the fields of its struct in `rules.h`.
    .Attr("constants: list(float) = []")
    .Attr("decay: float = 0.0")
    .Attr("decay_by_rate: bool = false")
    // Empty, or the least and the largest value; of no bound, infinity.
    .Attr("clip_gradient: list(float) = []")
    .Attr("clip_row: list(float) = []")
    // The longest that a row's gradient may be; 0: as long as it is.
    .Attr("clip_norm: float = 0.0")
    .Attr("from_zero: bool = true")
    // How TensorFlow's graph optimizer changes the rules, see `fused_rows.py`.
    .Attr("optimized: bool = false")
    .Attr("swapped: bool = false")
    .Attr("by_reciprocal: bool = false")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

// A variable of which nothing shares the memory, locked.
class Locked {
 public:
  static absl::Status Of(OpKernelContext* context, const Tensor& handle, int dims, bool mark, Locked* found) {
    TF_RETURN_IF_ERROR(Find(context, handle, &found->variable_));
    found->variable_->mu()->lock();
    found->locked_ = true;
    Tensor* tensor = found->variable_->tensor();
    const bool fits = mark ? tensor->dtype() == tensorflow::DT_UINT8 : IsRowType(tensor->dtype());
    if (!found->variable_->is_initialized || !fits || tensor->dims() != dims) {
      return absl::FailedPreconditionError("a table, slot or record of touched rows is not initialized, or another");
    }
    if (!found->variable_->copy_on_read_mode.load()) {
      if (!tensor->RefCountIsOne()) {  // somebody holds what was read from it
        Tensor copy;
        TF_RETURN_IF_ERROR(context->allocate_temp(tensor->dtype(), tensor->shape(), &copy));
        std::memcpy(copy.data(), tensor->data(), tensor->TotalBytes());
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

// A variable with a value for each row of the table, which is only read; none if there is no handle.
class PerRow {
 public:
  absl::Status Read(OpKernelContext* context, const OpInputList& handles) {
    if (!handles.size()) return absl::OkStatus();
    TF_RETURN_IF_ERROR(Find(context, handles[0], &variable_));
    tensorflow::tf_shared_lock lock(*variable_->mu());
    if (!variable_->is_initialized || variable_->tensor()->dims() != 1) {
      return absl::FailedPreconditionError("the groups or places of rows are not initialized");
    }
    values_ = *variable_->tensor();
    return absl::OkStatus();
  }
  bool any() const { return variable_ != nullptr; }
  const Tensor& values() const { return values_; }

 private:
  tensorflow::core::RefCountPtr<Var> variable_;
  Tensor values_;
};

// The memory of a variable.
struct Stored {
  char* memory;
  tensorflow::DataType type;
  bool narrow() const { return type != tensorflow::DT_FLOAT; }
  // Where a number is; of 16 bits, if it is narrow.
  float* floats(int64_t number) const {
    return reinterpret_cast<float*>(memory + number * (narrow() ? sizeof(uint16_t) : sizeof(float)));
  }
  // As many floats as so many numbers take.
  int64_t lines(int64_t numbers) const { return narrow() ? (numbers + 1) / 2 : numbers; }
};

// A distinct row that moves.
struct Moved {
  int64_t id;
  int64_t place;   // in the variables
  int64_t number;  // to round by
  float rate;
};

template <typename Id>
class MoveRows : public OpKernel {
 public:
  explicit MoveRows(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rule", &rule_));
    OP_REQUIRES_OK(context, context->GetAttr("constants", &constants_));
    OP_REQUIRES_OK(context, context->GetAttr("decay", &decay_));
    OP_REQUIRES_OK(context, context->GetAttr("decay_by_rate", &decay_by_rate_));
    OP_REQUIRES_OK(context, context->GetAttr("clip_gradient", &clip_gradient_));
    OP_REQUIRES_OK(context, context->GetAttr("clip_row", &clip_row_));
    OP_REQUIRES_OK(context, context->GetAttr("clip_norm", &clip_norm_));
    OP_REQUIRES_OK(context, context->GetAttr("from_zero", &from_zero_));
    OP_REQUIRES_OK(context, context->GetAttr("optimized", &graph_.optimized));
    OP_REQUIRES_OK(context, context->GetAttr("swapped", &graph_.swapped));
    OP_REQUIRES_OK(context, context->GetAttr("by_reciprocal", &graph_.by_reciprocal));
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES(context, key_.empty() || key_.size() == 2, absl::InvalidArgumentError("a key is two words"));
    const size_t needed = rule_ == "adagrad_momentum" || rule_ == "adam" ? 6
                          : rule_ == "ftrl"                              ? 5
                          : rule_ == "rowwise_adagrad"                   ? 1
                                                                         : 0;
    OP_REQUIRES(context, constants_.size() == needed, absl::InvalidArgumentError("the rule has other constants"));
    for (const auto* bounds : {&clip_gradient_, &clip_row_}) {
      OP_REQUIRES(context, bounds->empty() || bounds->size() == 2, absl::InvalidArgumentError("bounds are two"));
    }
  }

  void Compute(OpKernelContext* context) override {
    if (rule_ == "sgd") {
      Apply(context, Sgd(constants_, graph_));
    } else if (rule_ == "adagrad") {
      Apply(context, Adagrad(constants_, graph_));
    } else if (rule_ == "rowwise_adagrad") {
      Apply(context, RowwiseAdagrad(constants_, graph_));
    } else if (rule_ == "adagrad_momentum") {
      Apply(context, AdagradMomentum(constants_, graph_));
    } else if (rule_ == "adam") {
      Apply(context, Adam(constants_, graph_));
    } else {
      Apply(context, Ftrl(constants_, graph_));
    }
  }

 private:
  // What is done to each packet of a row.
  template <typename Rule, bool kLimited>
  struct Step {
    Rule rule;
    Bounds gradient, row;
    float zero;  // what the gradient is added to: 0, or -0, which changes nothing
    bool decays;

    template <typename P>
    EIGEN_ALWAYS_INLINE void Do(float rate, float decay, const float* g, float* const* moved, int64_t at) const {
      using namespace Eigen::internal;
      P w = ploadu<P>(moved[0] + at);
      P slots[Rule::kSlots + 1];
      for (int v = 0; v < Rule::kSlots; ++v) slots[v] = ploadu<P>(moved[v + 1] + at);
      P gradient_of = padd(pset1<P>(zero), ploadu<P>(g + at));
      if constexpr (kLimited) {
        gradient_of = gradient(gradient_of);
        if (decays) w = psub(w, pmul(pset1<P>(decay), w));
      }
      rule(pset1<P>(rate), gradient_of, w, slots);
      for (int v = 0; v < Rule::kSlots; ++v) pstoreu(moved[v + 1] + at, slots[v]);
      if constexpr (kLimited) w = row(w);
      pstoreu(moved[0] + at, w);
    }
  };

  // A row's gradient, clipped, at `clipped`, which may be where it is.
  const float* Whole(const float* g, int64_t dim, float* clipped, float* squares) const {
    const Bounds bounds(clip_gradient_);
    const float zero = from_zero_ ? 0.0f : -0.0f;
    for (int64_t at = 0; at < dim; ++at) clipped[at] = bounds(zero + g[at]);
    if (clip_norm_ > 0.0f) {
      const float norm = std::sqrt(SquaredNorm(clipped, dim, squares));
      const float scale = clip_norm_ / std::max(norm, clip_norm_);  // NaN, if the norm is
      for (int64_t at = 0; at < dim; ++at) clipped[at] *= scale;
    }
    return clipped;
  }

  // Of occurrences: the distinct rows that move, in the order of their first occurrence, where they are, and which
  // occurrences are theirs.
  absl::Status FindMoved(OpKernelContext* context, const Tensor& ids_of, float rate, int64_t rows, int64_t stored,
                         const int64_t* number_of, std::vector<Moved>* moved, ByRow* by_row) const {
    OpInputList groups_of, multipliers_of, places_of;
    TF_RETURN_IF_ERROR(context->input_list("groups", &groups_of));
    TF_RETURN_IF_ERROR(context->input_list("multipliers", &multipliers_of));
    TF_RETURN_IF_ERROR(context->input_list("places", &places_of));
    PerRow groups, places;
    TF_RETURN_IF_ERROR(groups.Read(context, groups_of));
    TF_RETURN_IF_ERROR(places.Read(context, places_of));
    if (places.any()) rows = places.values().dim_size(0);
    if (!groups.any() || groups.values().dtype() != tensorflow::DT_UINT8 || groups.values().dim_size(0) != rows) {
      return absl::InvalidArgumentError("there must be a group, of one byte, for each row");
    }
    const uint8_t* group = groups.values().flat<uint8_t>().data();
    const float* multipliers = multipliers_of[0].flat<float>().data();
    const int64_t kinds = multipliers_of[0].NumElements();
    const bool wide = places.any() && places.values().dtype() == tensorflow::DT_INT64;
    const int32_t* narrow_places = places.any() && !wide ? places.values().flat<int32_t>().data() : nullptr;
    const int64_t* wide_places = wide ? static_cast<const int64_t*>(places.values().data()) : nullptr;

    const int64_t count = ids_of.NumElements();
    const Id* ids = ids_of.template flat<Id>().data();
    std::vector<int32_t> numbers;  // of occurrences whose row moves
    for (int64_t n = 0; n < count; ++n) {
      if (n + kBytesAhead < count && !Outside(ids[n + kBytesAhead], rows)) {
        __builtin_prefetch(group + static_cast<int64_t>(ids[n + kBytesAhead]));
      }
      if (Outside(ids[n], rows)) return absl::InvalidArgumentError("an id is outside of the table");
      const uint8_t own = group[static_cast<int64_t>(ids[n])];
      if (own >= kinds) return absl::InvalidArgumentError("a group has no multiplier");
      if (multipliers[own] > 0.0f) numbers.push_back(static_cast<int32_t>(n));
    }

    const int64_t moving = numbers.size();
    Numbering<Id> numbering(moving);
    std::vector<int32_t> row_of(moving);
    for (int64_t m = 0; m < moving; ++m) {
      const int64_t id = ids[numbers[m]];
      if (m + kAhead < moving) {
        const int64_t coming = ids[numbers[m + kAhead]];
        if (narrow_places != nullptr) __builtin_prefetch(narrow_places + coming);
        if (wide_places != nullptr) __builtin_prefetch(wide_places + coming);
      }
      const auto next = static_cast<int32_t>(moved->size());
      row_of[m] = numbering.Of(id, next);
      if (row_of[m] == next) {
        int64_t place = id;
        if (narrow_places != nullptr) place = -1 - static_cast<int64_t>(narrow_places[id]);
        if (wide_places != nullptr) place = -1 - wide_places[id];
        if (Outside(place, stored)) return absl::InvalidArgumentError("a row that moves is not among those that may");
        const int64_t number = number_of == nullptr ? id : number_of[numbers[m]];
        moved->push_back(Moved{id, place, number, rate * multipliers[group[id]]});
      }
    }
    by_row->Fill(moved->size(), moving, row_of.data(), [&](int64_t m) { return numbers[m]; });
    return absl::OkStatus();
  }

  template <typename Rule>
  void Apply(OpKernelContext* context, const Rule& rule) {
    constexpr int kVariables = 1 + Rule::kSlots + Rule::kRowSlots;
    OpInputList handles, gradients_of, touched_of, rate_of, positions_of, step_of, shares_of, numbers_of;
    OP_REQUIRES_OK(context, context->input_list("variables", &handles));
    OP_REQUIRES_OK(context, context->input_list("positions", &positions_of));
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients_of));
    OP_REQUIRES_OK(context, context->input_list("touched", &touched_of));
    OP_REQUIRES_OK(context, context->input_list("rate", &rate_of));
    OP_REQUIRES_OK(context, context->input_list("step", &step_of));
    OP_REQUIRES_OK(context, context->input_list("shares", &shares_of));
    OP_REQUIRES_OK(context, context->input_list("numbers", &numbers_of));
    PerRow shares;
    OP_REQUIRES_OK(context, shares.Read(context, shares_of));
    OP_REQUIRES(context, !shares.any() || shares.values().dtype() == tensorflow::DT_FLOAT,
                absl::InvalidArgumentError("a row's share of the decay must be float32"));
    OP_REQUIRES(context, key_.empty() || step_of.size() == 1, absl::InvalidArgumentError("a key needs a step"));
    const Rounding rounding{key_, step_of.size() ? step_of[0].template scalar<int64_t>()() : 0};
    OP_REQUIRES(context, handles.size() == kVariables, absl::InvalidArgumentError("the rule has other slots"));
    OP_REQUIRES(context, positions_of.size() <= 1, absl::InvalidArgumentError("positions are one vector"));
    const float rate = rate_of[0].template scalar<float>()();
    const Tensor& ids_of = context->input(kVariables);
    OP_REQUIRES(context, !numbers_of.size() || numbers_of[0].NumElements() == ids_of.NumElements(),
                absl::InvalidArgumentError("each id must have a number"));
    const int64_t* number_of = numbers_of.size() ? numbers_of[0].template flat<int64_t>().data() : nullptr;
    const bool grouped = positions_of.size() == 0;
    const int64_t count = grouped ? ids_of.NumElements() : positions_of[0].NumElements();
    Gradients gradients;
    OP_REQUIRES_OK(context, gradients.Of(gradients_of, 0, gradients_of.size(), count));
    const int64_t dim = gradients.dim();

    Locked locked[kVariables], marks_locked;
    Stored base[kVariables];
    int64_t stored = std::numeric_limits<int64_t>::max();
    for (int v = 0; v < kVariables; ++v) {
      OP_REQUIRES_OK(context, Locked::Of(context, handles[v], 2, false, &locked[v]));
      Tensor* tensor = locked[v].tensor();
      OP_REQUIRES(context, tensor->dim_size(1) == (v > Rule::kSlots ? 1 : dim),
                  absl::InvalidArgumentError("table, slots and gradient must have the same width"));
      stored = std::min(stored, tensor->dim_size(0));  // slots of a table in parts have rows that move only
      OP_REQUIRES(context, v <= Rule::kSlots || tensor->dtype() == tensorflow::DT_FLOAT,
                  absl::InvalidArgumentError("a slot with a number for each row must be float32"));
      base[v] = Stored{static_cast<char*>(tensor->data()), tensor->dtype()};
    }

    const Id* ids = ids_of.template flat<Id>().data();
    std::vector<Moved> moved;
    ByRow by_row;
    if (grouped) {
      const int64_t rows = locked[0].tensor()->dim_size(0);
      OP_REQUIRES_OK(context, FindMoved(context, ids_of, rate, rows, stored, number_of, &moved, &by_row));
    } else {
      const int64_t distinct = ids_of.NumElements();
      const int32_t* positions = positions_of[0].flat<int32_t>().data();
      for (int64_t n = 0; n < count; ++n) {
        OP_REQUIRES(context, !Outside(positions[n], distinct),
                    absl::InvalidArgumentError("a position is outside of the distinct ids"));
      }
      for (int64_t k = 0; k < distinct; ++k) {
        OP_REQUIRES(context, !Outside(ids[k], stored), absl::InvalidArgumentError("an id is outside of the table"));
      }
      by_row.Fill(distinct, count, positions, [](int64_t n) { return static_cast<int32_t>(n); });
    }

    uint8_t* marks = nullptr;
    int64_t largest = grouped ? -1 : stored - 1;
    for (const Moved& row : moved) largest = std::max(largest, row.id);
    OP_REQUIRES(context, !shares.any() || largest < shares.values().dim_size(0),
                absl::InvalidArgumentError("there must be a share of the decay for each row"));
    const float* share_of = shares.any() ? shares.values().flat<float>().data() : nullptr;
    if (touched_of.size()) {
      OP_REQUIRES_OK(context, Locked::Of(context, touched_of[0], 1, true, &marks_locked));
      const int64_t marked = marks_locked.tensor()->dim_size(0);
      OP_REQUIRES(context, largest < marked,
                  absl::InvalidArgumentError("the record of touched rows must have one for each row"));
      marks = marks_locked.tensor()->template flat<uint8_t>().data();
    }
    // What concerns a gradient as a whole is done before the rule sees its parts.
    const bool whole = Rule::kRowSlots > 0 || clip_norm_ > 0.0f;
    const Bounds row(clip_row_), gradient = whole ? Bounds({}) : Bounds(clip_gradient_);
    const float zero = from_zero_ && !whole ? 0.0f : -0.0f;
    const bool decays = decay_ != 0.0f;
    const auto move = [&](int64_t rows, const auto& row_of) {
      if (gradient.any || row.any || decays) {
        const Step<Rule, true> step{rule, gradient, row, zero, decays};
        MoveAll(context, step, gradients, by_row, rows, row_of, base, rounding, share_of, marks);
      } else {
        const Step<Rule, false> step{rule, gradient, row, zero, decays};
        MoveAll(context, step, gradients, by_row, rows, row_of, base, rounding, share_of, marks);
      }
    };
    if (grouped) {
      move(moved.size(), [&](int64_t k) { return moved[k]; });
    } else {
      move(ids_of.NumElements(), [&](int64_t k) {
        const int64_t id = ids[k];
        return Moved{id, id, number_of == nullptr ? id : number_of[k], rate};
      });
    }
  }

  // Moves rows, in threads if there are many.
  template <typename Rule, bool kLimited, typename RowOf>
  void MoveAll(OpKernelContext* context, const Step<Rule, kLimited>& shared, const Gradients& gradients,
               const ByRow& by_row, int64_t rows, const RowOf& row_of, const Stored* base, const Rounding& rounding,
               const float* share_of, uint8_t* marks) const {
    constexpr int kVariables = 1 + Rule::kSlots;
    const bool whole = Rule::kRowSlots > 0 || clip_norm_ > 0.0f;
    const int64_t dim = gradients.dim(), packets = rows * dim / kPacket * kPacket;
    const auto work = [&](int64_t first, int64_t last) {
      std::vector<float> sum(dim), squares(whole ? dim : 0), wide(kVariables * dim);
      const Step<Rule, kLimited> step = shared;  // of this thread, so that no row can lie in its memory
      for (int64_t k = first; k < last; ++k) {
        if (k + kAhead < last) {
          const Moved coming = row_of(k + kAhead);
          for (int v = 0; v < kVariables; ++v) Prefetch<1>(base[v].floats(coming.place * dim), base[v].lines(dim));
          if constexpr (Rule::kRowSlots > 0) __builtin_prefetch(base[kVariables].floats(coming.place), 1);
          if (marks != nullptr) __builtin_prefetch(marks + coming.id, 1);
          if (share_of != nullptr) __builtin_prefetch(share_of + coming.id);
        }
        Moved row = row_of(k);
        const int32_t begin = by_row.starts[k], end = by_row.starts[k + 1];
        const float* g = gradients.at(by_row.order[begin]);
        if (end - begin > 1) {
          for (int64_t at = 0; at < dim; ++at) sum[at] = step.zero + g[at];
          for (int32_t n = begin + 1; n < end; ++n) Add(gradients.at(by_row.order[n]), dim, sum.data());
          g = sum.data();
        }
        if (marks != nullptr) marks[row.id] = 1;
        float decay = decay_by_rate_ ? decay_ * row.rate : decay_;
        if (share_of != nullptr) decay = std::min(decay * share_of[row.id], 1.0f);
        if (whole) g = Whole(g, dim, sum.data(), squares.data());
        if constexpr (Rule::kRowSlots > 0) {
          const float mean = SquaredNorm(g, dim, squares.data()) * static_cast<float>(1.0 / dim);
          row.rate = step.rule.Rate(row.rate, mean, base[kVariables].floats(row.place));
        }
        float* values[kVariables];
        for (int v = 0; v < kVariables; ++v) {
          values[v] = base[v].floats(row.place * dim);
          if (!base[v].narrow()) continue;
          const void* from = values[v];
          Widen(from, base[v].type, dim, values[v] = wide.data() + v * dim);
        }
        // TensorFlow's operations see all rows as one array: packets of it, and what is left as single numbers.
        const int64_t in_packets = std::clamp<int64_t>(packets - k * dim, 0, dim);
        int64_t at = 0;
        for (; at + kPacket <= in_packets; at += kPacket) step.template Do<Packet>(row.rate, decay, g, values, at);
        if (at < in_packets) {  // a part of a packet, filled with zeros
          float padded[kVariables + 1][kPacket] = {};
          float* parts[kVariables];
          for (int v = 0; v < kVariables; ++v) std::copy(values[v] + at, values[v] + in_packets, parts[v] = padded[v]);
          std::copy(g + at, g + in_packets, padded[kVariables]);
          step.template Do<Packet>(row.rate, decay, padded[kVariables], parts, 0);
          for (int v = 0; v < kVariables; ++v) std::copy_n(padded[v], in_packets - at, values[v] + at);
        }
        for (at = in_packets; at < dim; ++at) step.template Do<float>(row.rate, decay, g, values, at);
        for (int v = 0; v < kVariables; ++v) {
          if (!base[v].narrow()) continue;
          rounding.Narrow(values[v], base[v].type, dim, row.number, v, base[v].floats(row.place * dim));
        }
      }
    };
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    const int64_t of_each = by_row.order.size() / std::max<int64_t>(rows, 1);
    const int64_t cycles = 100 * kVariables + 4 * dim * kVariables + dim * of_each;
    if (rows * cycles < kShared) {
      work(0, rows);
    } else {
      workers->workers->ParallelFor(rows, cycles, work);
    }
  }

  std::string rule_;
  std::vector<float> constants_, clip_gradient_, clip_row_;
  std::vector<int64_t> key_;
  Graph graph_;
  float decay_, clip_norm_;
  bool decay_by_rate_, from_zero_;
};

EMBEXP_REGISTER("EmbexpMoveRows", MoveRows);

}  // namespace embexp
