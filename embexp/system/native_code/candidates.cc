// Scores of each query's own candidates, scalar products or sums of absolute differences, and their gradients, query by
// query: nothing but the candidates and their gradient is as large as they are, and both are passed over once.
//
// The same bits as TensorFlow's operations: products are chains of fused multiply-adds in rising order, as oneDNN's
// are, and sums are Eigen's. Whether they agree on a machine is tried there before this is used (see `knowledge_graph.py`).

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace embexp {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kLanes = 8;
#define EMBEXP_FMA __attribute__((target("avx2,fma")))

REGISTER_OP("EmbexpOwnScores")
    .Input("query: float")
    .Input("candidates: float")
    .Output("scores: float")
    .Attr("kind: {'products', 'absolute'}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle candidates;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 3, &candidates));
      context->set_output(0, context->Matrix(context->Dim(candidates, 0), context->Dim(candidates, 1)));
      return absl::OkStatus();
    });

REGISTER_OP("EmbexpOwnScoresGrad")
    .Input("query: float")
    .Input("candidates: float")
    .Input("upstream: float")
    .Output("of_query: float")
    .Output("of_candidates: float")
    .Attr("kind: {'products', 'absolute'}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->input(0));
      context->set_output(1, context->input(1));
      return absl::OkStatus();
    });

// Eight numbers of each of eight rows, turned: lane i of block[k] becomes number k of row i.
EMBEXP_FMA inline void Turned(const float* const* rows, int64_t at, __m256* block) {
  __m256 low[4], high[4];
  for (int i = 0; i < 4; ++i) {  // numbers 0 to 3, and 4 to 7, of rows i and i + 4
    low[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(rows[i] + at)), _mm_loadu_ps(rows[i + 4] + at), 1);
    high[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(rows[i] + at + 4)),
                                   _mm_loadu_ps(rows[i + 4] + at + 4), 1);
  }
  for (const __m256* part : {low, high}) {
    const __m256 a = _mm256_unpacklo_ps(part[0], part[1]), b = _mm256_unpackhi_ps(part[0], part[1]);
    const __m256 c = _mm256_unpacklo_ps(part[2], part[3]), d = _mm256_unpackhi_ps(part[2], part[3]);
    *block++ = _mm256_shuffle_ps(a, c, 0x44);
    *block++ = _mm256_shuffle_ps(a, c, 0xEE);
    *block++ = _mm256_shuffle_ps(b, d, 0x44);
    *block++ = _mm256_shuffle_ps(b, d, 0xEE);
  }
}

struct Products {
  static constexpr bool kNeedsFma = true;

  // Two times eight candidates at once, as one chain alone would wait for each of its additions.
  EMBEXP_FMA static void Forward(const float* query, const float* candidates, int64_t count, int64_t dim,
                                 std::vector<float>*, float* scores) {
    constexpr int kSets = 2;
    for (int64_t first = 0; first < count; first += kSets * kLanes) {
      const float* rows[kSets * kLanes];
      for (int64_t i = 0; i < kSets * kLanes; ++i) rows[i] = candidates + std::min(first + i, count - 1) * dim;
      __m256 sums[kSets] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
      for (int64_t at = 0; at < dim; at += kLanes) {
        for (int set = 0; set < kSets; ++set) {
          __m256 block[kLanes];
          Turned(rows + set * kLanes, at, block);
          for (int k = 0; k < kLanes; ++k) {
            sums[set] = _mm256_fmadd_ps(block[k], _mm256_broadcast_ss(query + at + k), sums[set]);
          }
        }
      }
      float found[kSets * kLanes];
      for (int set = 0; set < kSets; ++set) _mm256_storeu_ps(found + set * kLanes, sums[set]);
      std::copy_n(found, std::min(kSets * kLanes, count - first), scores + first);
    }
  }

  EMBEXP_FMA static void Backward(const float* query, const float* candidates, const float* upstream, int64_t count,
                                  int64_t dim, std::vector<float>*, float* of_query, float* of_candidates) {
    std::fill_n(of_query, dim, 0.0f);
    for (int64_t c = 0; c < count; ++c) {
      const __m256 g = _mm256_broadcast_ss(upstream + c);
      for (int64_t k = 0; k < dim; k += kLanes) {
        const __m256 sum = _mm256_fmadd_ps(g, _mm256_loadu_ps(candidates + c * dim + k), _mm256_loadu_ps(of_query + k));
        _mm256_storeu_ps(of_query + k, sum);
        _mm256_stream_ps(of_candidates + c * dim + k, _mm256_mul_ps(g, _mm256_loadu_ps(query + k)));
      }
    }
  }
};

struct Absolute {
  static constexpr bool kNeedsFma = false;
  template <int kRank>
  using Read = Eigen::TensorMap<Eigen::Tensor<const float, kRank, Eigen::RowMajor>>;

  static void Forward(const float* query, const float* candidates, int64_t count, int64_t dim,
                      std::vector<float>* scratch, float* scores) {
    scratch->resize(dim);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t k = 0; k < dim; k += kLanes) {
        const __m256 difference = _mm256_sub_ps(_mm256_loadu_ps(query + k), _mm256_loadu_ps(candidates + c * dim + k));
        _mm256_storeu_ps(scratch->data() + k, _mm256_andnot_ps(sign, difference));
      }
      Eigen::TensorMap<Eigen::TensorFixedSize<float, Eigen::Sizes<>, Eigen::RowMajor>> score(scores + c);
      score = Read<1>(scratch->data(), dim).sum();
    }
  }

  // The gradient by a candidate is minus, and that by the query the sum over candidates of, upstream times the sign of
  // each difference.
  static void Backward(const float* query, const float* candidates, const float* upstream, int64_t count, int64_t dim,
                       std::vector<float>* scratch, float* of_query, float* of_candidates) {
    scratch->resize(count * dim);
    const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1.0f), minus = _mm256_set1_ps(-0.0f);
    for (int64_t c = 0; c < count; ++c) {
      const __m256 g = _mm256_broadcast_ss(upstream + c);
      for (int64_t k = 0; k < dim; k += kLanes) {
        const __m256 x = _mm256_sub_ps(_mm256_loadu_ps(query + k), _mm256_loadu_ps(candidates + c * dim + k));
        __m256 sign = _mm256_sub_ps(_mm256_and_ps(_mm256_cmp_ps(x, zero, _CMP_GT_OQ), one),
                                    _mm256_and_ps(_mm256_cmp_ps(x, zero, _CMP_LT_OQ), one));
        sign = _mm256_blendv_ps(sign, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        const __m256 each = _mm256_mul_ps(g, sign);
        _mm256_storeu_ps(scratch->data() + c * dim + k, each);
        _mm256_stream_ps(of_candidates + c * dim + k, _mm256_xor_ps(minus, each));
      }
    }
    Eigen::TensorMap<Eigen::Tensor<float, 2, Eigen::RowMajor>> sum(of_query, 1, dim);
    // The axis is known when this is compiled, as in TensorFlow: Eigen sums in another order otherwise.
    sum = Read<3>(scratch->data(), 1, count, dim).sum(Eigen::IndexList<Eigen::type2index<1>>());
  }
};

// The sizes of a call.
struct Sizes {
  int64_t batch, count, dim;

  absl::Status Read(const Tensor& query, const Tensor& candidates, bool needs_fma) {
    if (candidates.dims() != 3 || query.dims() != 2 || query.dim_size(0) != candidates.dim_size(0) ||
        query.dim_size(1) != candidates.dim_size(2)) {
      return absl::InvalidArgumentError("queries must be [B, d], and candidates [B, C, d]");
    }
    batch = candidates.dim_size(0), count = candidates.dim_size(1), dim = candidates.dim_size(2);
    if (dim % kLanes) return absl::InvalidArgumentError("vectors must have a multiple of 8 numbers");
    if (needs_fma && !(__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))) {
      return absl::UnimplementedError("this processor has no fused multiply-add");
    }
    return absl::OkStatus();
  }

  template <typename Work>
  void ForQueries(OpKernelContext* context, const Work& work) const {
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(batch, count * dim, work);
  }
};

// An operation that does `Call` for the kind of scores that it was made for.
template <typename Call>
class OfKind : public OpKernel {
 public:
  explicit OfKind(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind_));
  }

  void Compute(OpKernelContext* context) override {
    kind_ == "products" ? Call::template Apply<Products>(context) : Call::template Apply<Absolute>(context);
  }

 private:
  std::string kind_;
};

struct Scores {
  template <typename Kind>
  static void Apply(OpKernelContext* context) {
    const Tensor &query = context->input(0), &candidates = context->input(1);
    Sizes sizes;
    OP_REQUIRES_OK(context, sizes.Read(query, candidates, Kind::kNeedsFma));
    const int64_t batch = sizes.batch, count = sizes.count, dim = sizes.dim;
    Tensor* scores;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({batch, count}), &scores));
    const float *q = query.flat<float>().data(), *c = candidates.flat<float>().data();
    float* found = scores->flat<float>().data();
    sizes.ForQueries(context, [=](int64_t first, int64_t last) {
      std::vector<float> scratch;
      for (int64_t b = first; b < last; ++b) {
        Kind::Forward(q + b * dim, c + b * count * dim, count, dim, &scratch, found + b * count);
      }
    });
  }
};

struct Gradients {
  template <typename Kind>
  static void Apply(OpKernelContext* context) {
    const Tensor &query = context->input(0), &candidates = context->input(1), &upstream = context->input(2);
    Sizes sizes;
    OP_REQUIRES_OK(context, sizes.Read(query, candidates, Kind::kNeedsFma));
    const int64_t batch = sizes.batch, count = sizes.count, dim = sizes.dim;
    OP_REQUIRES(context, upstream.shape() == TensorShape({batch, count}),
                absl::InvalidArgumentError("the gradient must have the shape of the scores"));
    Tensor *of_query, *of_candidates;
    OP_REQUIRES_OK(context, context->allocate_output(0, query.shape(), &of_query));
    OP_REQUIRES_OK(context, context->allocate_output(1, candidates.shape(), &of_candidates));
    const float *q = query.flat<float>().data(), *c = candidates.flat<float>().data(),
                *g = upstream.flat<float>().data();
    float *own = of_query->flat<float>().data(), *theirs = of_candidates->flat<float>().data();
    sizes.ForQueries(context, [=](int64_t first, int64_t last) {
      std::vector<float> scratch;
      for (int64_t b = first; b < last; ++b) {
        const int64_t begin = b * count * dim;
        Kind::Backward(q + b * dim, c + begin, g + b * count, count, dim, &scratch, own + b * dim, theirs + begin);
      }
      _mm_sfence();  // the stores above went past the caches
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbexpOwnScores").Device(DEVICE_CPU), OfKind<Scores>);
REGISTER_KERNEL_BUILDER(Name("EmbexpOwnScoresGrad").Device(DEVICE_CPU), OfKind<Gradients>);

}  // namespace embexp
