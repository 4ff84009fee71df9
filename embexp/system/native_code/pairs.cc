// Dot products of all pairs of vectors of an example, behind some of the vectors themselves, and their gradient, example
// by example in the nearest cache.
//
// Each number is one chain of fused multiply-adds in rising order, as oneDNN's matrix products of such sizes are. Whether
// the bits are the same on a machine is tried there before this is used (see `models/recommendation.py`).

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace embexp {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kLanes = 8;
#define EMBEXP_FMA __attribute__((target("avx2,fma")))

REGISTER_OP("EmbexpPairs")
    .Input("vectors: F * float")
    .Output("products: float")
    .Attr("F: int >= 2")
    .Attr("lead: int >= 0")
    .Attr("wide: bool = true")  // whether AVX-512 may be used; the bits are the same
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      const int64_t count = context->num_inputs();
      int64_t lead;
      TF_RETURN_IF_ERROR(context->GetAttr("lead", &lead));
      tensorflow::shape_inference::DimensionHandle width;
      TF_RETURN_IF_ERROR(context->Multiply(context->Dim(context->input(0), 1), lead, &width));
      TF_RETURN_IF_ERROR(context->Add(width, count * (count - 1) / 2, &width));
      context->set_output(0, context->Matrix(context->Dim(context->input(0), 0), width));
      return absl::OkStatus();
    });

REGISTER_OP("EmbexpPairsGrad")
    .Input("vectors: F * float")
    .Input("upstream: float")
    .Output("gradients: F * float")
    .Attr("F: int >= 2")
    .Attr("lead: int >= 0")
    .Attr("wide: bool = true")  // whether AVX-512 may be used; the bits are the same
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i + 1 < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

// Checks that all vectors are [B, d] with d whole packets; returns where they begin.
absl::Status Begins(const OpInputList& vectors, std::vector<const float*>* found) {
  const TensorShape& shape = vectors[0].shape();
  if (shape.dims() != 2 || shape.dim_size(1) % kLanes) {
    return absl::InvalidArgumentError("vectors must be matrices with a multiple of 8 columns");
  }
  for (const Tensor& each : vectors) {
    if (each.shape() != shape) return absl::InvalidArgumentError("vectors must have the same shape");
    found->push_back(each.flat<float>().data());
  }
  if (!__builtin_cpu_supports("fma") || !__builtin_cpu_supports("avx2")) {
    return absl::UnimplementedError("this processor has no fused multiply-add");
  }
  return absl::OkStatus();
}

// Sums kTile x kBlocks * kLanes numbers at a time: one chain alone would wait for each of its additions, and each factor
// that is loaded serves several.
constexpr int64_t kTile = 4;

// left [kTile] rows of `steps` factors, each `stride` apart, times right [steps, width]: some column blocks of the sums.
template <int kBlocks>
EMBEXP_FMA inline void Tile(const float* left, int64_t stride, const float* right, int64_t width, int64_t steps,
                            __m256 (*sums)[kBlocks]) {
  __m256 found[kTile][kBlocks] = {};
  for (int64_t k = 0; k < steps; ++k) {
    __m256 factors[kBlocks];
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) factors[j] = _mm256_loadu_ps(right + k * width + j * kLanes);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kTile; ++i) {
      const __m256 factor = _mm256_broadcast_ss(left + i * stride + k);
#pragma GCC unroll 2
      for (int j = 0; j < kBlocks; ++j) found[i][j] = _mm256_fmadd_ps(factor, factors[j], found[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kTile; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kBlocks; ++j) sums[i][j] = found[i][j];
  }
}

// All column blocks from `first` to `width`, two at a time where there are two; `store(row, column, sums)` takes each.
template <typename Store>
EMBEXP_FMA inline void Tiles(const float* left, int64_t stride, const float* right, int64_t width, int64_t steps,
                             int64_t first, const Store& store) {
  int64_t at = first;
  for (; at + 2 * kLanes <= width; at += 2 * kLanes) {
    __m256 sums[kTile][2];
    Tile<2>(left, stride, right + at, width, steps, sums);
    for (int64_t i = 0; i < kTile; ++i) store(i, at, sums[i][0]), store(i, at + kLanes, sums[i][1]);
  }
  if (at < width) {
    __m256 sums[kTile][1];
    Tile<1>(left, stride, right + at, width, steps, sums);
    for (int64_t i = 0; i < kTile; ++i) store(i, at, sums[i][0]);
  }
}

inline int64_t Padded(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

EMBEXP_FMA void Forward(const std::vector<const float*>& vectors, int64_t dim, int64_t lead, int64_t first,
                        int64_t last, float* products) {
  const int64_t count = vectors.size(), padded = Padded(count);
  // The vectors of an example, and the same turned: [count, dim] and [dim, count], both padded with zeros.
  std::vector<float> rows(padded * dim, 0.0f), columns(dim * padded, 0.0f), gram(padded * padded);
  for (int64_t b = first; b < last; ++b) {
    for (int64_t i = 0; i < count; ++i) {
      const float* vector = vectors[i] + b * dim;
      std::copy_n(vector, dim, &rows[i * dim]);
      for (int64_t k = 0; k < dim; ++k) columns[k * padded + i] = vector[k];
    }
    for (int64_t i = 0; i + 1 < count; i += kTile) {
      Tiles(&rows[i * dim], dim, columns.data(), padded, dim, (i + 1) / kLanes * kLanes,
            [&](int64_t n, int64_t j, const __m256& sums)
                EMBEXP_FMA { _mm256_storeu_ps(&gram[(i + n) * padded + j], sums); });
    }
    float* out = std::copy_n(rows.data(), lead * dim, products + b * (lead * dim + count * (count - 1) / 2));
    for (int64_t i = 0; i + 1 < count; ++i) out = std::copy_n(&gram[i * padded + i + 1], count - i - 1, out);
  }
}

EMBEXP_FMA void Backward(const std::vector<const float*>& vectors, int64_t dim, int64_t lead, int64_t first,
                         int64_t last, const float* upstream, const std::vector<float*>& gradients) {
  const int64_t count = vectors.size(), padded = Padded(count);
  std::vector<float> rows(count * dim), symmetric(padded * count, 0.0f);
  for (int64_t b = first; b < last; ++b) {
    // [lead, dim], then those of the products.
    const float* leading = upstream + b * (lead * dim + count * (count - 1) / 2);
    const float* g = leading + lead * dim;
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(vectors[i] + b * dim, dim, &rows[i * dim]);
      for (int64_t j = i + 1; j < count; ++j) symmetric[i * count + j] = symmetric[j * count + i] = *g++;
    }
    for (int64_t i = 0; i < count; i += kTile) {
      const auto store = [&](int64_t n, int64_t at, __m256 sum) EMBEXP_FMA {
        if (i + n >= count) return;
        if (i + n < lead) sum = _mm256_add_ps(sum, _mm256_loadu_ps(leading + (i + n) * dim + at));
        _mm256_storeu_ps(gradients[i + n] + b * dim + at, sum);
      };
      Tiles(&symmetric[i * count], count, rows.data(), dim, count, 0, store);
    }
  }
}

// The same with registers of sixteen numbers, for dims that fill them, and at least `kWideTile` vectors.

constexpr int64_t kWide = 16, kWideTile = 8;
constexpr int64_t kAhead = 3;  // examples that are fetched before; the vectors of one lie in as many places
#define EMBEXP_WIDE __attribute__((target("avx512f")))

inline bool WideServes(int64_t count, int64_t dim) {
  return count >= kWideTile && dim % kWide == 0 && __builtin_cpu_supports("avx512f");
}

// Where the product of vectors i and j lies in an example, less j.
inline int64_t WithoutColumn(int64_t i, int64_t count) { return i * (count - 1) - i * (i - 1) / 2 - i - 1; }

// Copies of an example's vectors: in their tensors, they share too few places of the nearest cache.
EMBEXP_WIDE void Gathered(const std::vector<const float*>& vectors, int64_t example, int64_t dim, float* rows) {
  for (const float* each : vectors) {
    for (int64_t k = 0; k < dim; k += kWide, rows += kWide) {
      __builtin_prefetch(each + (example + kAhead) * dim + k);
      _mm512_storeu_ps(rows, _mm512_loadu_ps(each + example * dim + k));
    }
  }
}

// Sixteen rows of sixteen numbers, `stride` apart, turned: column k at `columns + k * to`. Rows from `have` on are zeros.
EMBEXP_WIDE void Turned(const float* rows, int64_t stride, int64_t have, float* columns, int64_t to) {
  __m512 a[kWide], b[kWide];
#pragma GCC unroll 16
  for (int i = 0; i < kWide; ++i) a[i] = i < have ? _mm512_loadu_ps(rows + i * stride) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < kWide; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]), b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kWide; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512d left = _mm512_castps_pd(b[i + j]), right = _mm512_castps_pd(b[i + 2 + j]);
      a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(left, right));
      a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(left, right));
    }
  }
  // a[4i + j] has, of rows 4i to 4i + 3, the columns j, 4 + j, 8 + j and 12 + j.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 even = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88), odd = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd);
    const __m512 even_below = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88);
    const __m512 odd_below = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xdd);
    _mm512_storeu_ps(columns + j * to, _mm512_shuffle_f32x4(even, even_below, 0x88));
    _mm512_storeu_ps(columns + (4 + j) * to, _mm512_shuffle_f32x4(odd, odd_below, 0x88));
    _mm512_storeu_ps(columns + (8 + j) * to, _mm512_shuffle_f32x4(even, even_below, 0xdd));
    _mm512_storeu_ps(columns + (12 + j) * to, _mm512_shuffle_f32x4(odd, odd_below, 0xdd));
  }
}

// `kWideTile` vectors times sixteen others, turned.
EMBEXP_WIDE inline void WideProducts(const float* rows, int64_t dim, const float* columns, int64_t padded,
                                     __m512* found) {
  __m512 sums[kWideTile] = {};
  for (int64_t k = 0; k < dim; ++k) {
    const __m512 factors = _mm512_loadu_ps(columns + k * padded);
#pragma GCC unroll 8
    for (int64_t n = 0; n < kWideTile; ++n) {
      sums[n] = _mm512_fmadd_ps(_mm512_set1_ps(rows[n * dim + k]), factors, sums[n]);
    }
  }
#pragma GCC unroll 8
  for (int64_t n = 0; n < kWideTile; ++n) found[n] = sums[n];
}

EMBEXP_WIDE void WideForward(const std::vector<const float*>& vectors, int64_t dim, int64_t lead, int64_t first,
                             int64_t last, float* products) {
  const int64_t count = vectors.size(), padded = (count + kWide - 1) / kWide * kWide;
  std::vector<float> rows(padded * dim, 0.0f), columns(dim * padded);
  for (int64_t b = first; b < last; ++b) {
    Gathered(vectors, b, dim, rows.data());
    for (int64_t i = 0; i < count; i += kWide) {
      for (int64_t k = 0; k < dim; k += kWide) {
        Turned(&rows[i * dim + k], dim, count - i, &columns[k * padded + i], padded);
      }
    }
    float* out = std::copy_n(rows.data(), lead * dim, products + b * (lead * dim + count * (count - 1) / 2));
    for (int64_t j = 0; j < count; j += kWide) {
      const uint32_t inside = count - j >= kWide ? 0xffff : (1u << (count - j)) - 1;
      const int64_t above = std::min(count, j + kWide) - 1;  // rows that have products in these columns
      for (int64_t i = 0; i < above; i += kWideTile) {
        __m512 sums[kWideTile];
        WideProducts(&rows[i * dim], dim, &columns[j], padded, sums);
        for (int64_t n = 0; n < std::min(kWideTile, above - i); ++n) {
          const uint32_t right = i + n < j ? 0xffff : 0xfffeu << (i + n - j);
          _mm512_mask_storeu_ps(out + WithoutColumn(i + n, count) + j, inside & right, sums[n]);
        }
      }
    }
  }
}

// Gradients by `kWideTile` vectors from `i` on, of sixteen columns. `g`: gradients of the products. Adds them up over k,
// rising; products (i, k) and (k, i) are one number.
EMBEXP_WIDE inline void WideTile(const float* rows, int64_t dim, int64_t count, const float* g, int64_t i,
                                 __m512* found) {
  __m512 sums[kWideTile] = {};
  const float* row[kWideTile];
  float square[kWideTile][kWideTile] = {};
  for (int64_t n = 0; n < kWideTile; ++n) {
    row[n] = g + WithoutColumn(i + n, count);
    for (int64_t m = n + 1; m < kWideTile; ++m) square[n][m] = square[m][n] = row[n][i + m];
  }
  const auto add = [&](int64_t k, const auto& factor) EMBEXP_WIDE {
    const __m512 vector = _mm512_loadu_ps(rows + k * dim);
#pragma GCC unroll 8
    for (int64_t n = 0; n < kWideTile; ++n) sums[n] = _mm512_fmadd_ps(_mm512_set1_ps(factor(n)), vector, sums[n]);
  };
  int64_t k = 0;
  for (const float* above = g + i - 1; k < i; above += count - k - 2, ++k) {
    add(k, [&](int64_t n) EMBEXP_WIDE { return above[n]; });
  }
  for (; k < i + kWideTile; ++k) add(k, [&](int64_t n) EMBEXP_WIDE { return square[k - i][n]; });
  for (; k < count; ++k) add(k, [&](int64_t n) EMBEXP_WIDE { return row[n][k]; });
#pragma GCC unroll 8
  for (int64_t n = 0; n < kWideTile; ++n) found[n] = sums[n];
}

EMBEXP_WIDE void WideBackward(const std::vector<const float*>& vectors, int64_t dim, int64_t lead, int64_t first,
                              int64_t last, const float* upstream, const std::vector<float*>& gradients) {
  const int64_t count = vectors.size();
  std::vector<float> rows(count * dim);
  for (int64_t b = first; b < last; ++b) {
    const float* leading = upstream + b * (lead * dim + count * (count - 1) / 2);
    Gathered(vectors, b, dim, rows.data());
    for (int64_t at = 0; at < dim; at += kWide) {
      for (int64_t next = 0; next < count; next += kWideTile) {
        const int64_t i = std::min(next, count - kWideTile);  // the last tile does some vectors again
        __m512 sums[kWideTile];
        WideTile(rows.data() + at, dim, count, leading + lead * dim, i, sums);
        for (int64_t n = i; n < i + kWideTile; ++n) {
          __m512 sum = sums[n - i];
          if (n < lead) sum = _mm512_add_ps(sum, _mm512_loadu_ps(leading + n * dim + at));
          _mm512_storeu_ps(gradients[n] + b * dim + at, sum);
        }
      }
    }
  }
}

// The vectors of a call.
struct Vectors {
  OpInputList inputs;
  std::vector<const float*> begins;
  int64_t batch, dim, count;
  bool wide;

  // `lead`: how many of them stand before the products. `may_be_wide`: whether AVX-512 may be used.
  absl::Status Read(OpKernelContext* context, int64_t lead, bool may_be_wide) {
    TF_RETURN_IF_ERROR(context->input_list("vectors", &inputs));
    TF_RETURN_IF_ERROR(Begins(inputs, &begins));
    batch = inputs[0].dim_size(0), dim = inputs[0].dim_size(1), count = inputs.size();
    wide = may_be_wide && WideServes(count, dim);
    return lead <= count ? absl::OkStatus() : absl::InvalidArgumentError("there are not so many vectors to lead");
  }
  TensorShape ProductShape(int64_t lead) const { return TensorShape({batch, lead * dim + count * (count - 1) / 2}); }
};

template <typename Work>
void ForExamples(OpKernelContext* context, int64_t batch, int64_t cycles, const Work& work) {
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(batch, cycles, work);
}

class PairsKernel : public OpKernel {
 public:
  explicit PairsKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lead", &lead_));
    OP_REQUIRES_OK(context, context->GetAttr("wide", &wide_));
  }

 protected:
  int64_t lead_;
  bool wide_;
};

class Pairs : public PairsKernel {
 public:
  using PairsKernel::PairsKernel;

  void Compute(OpKernelContext* context) override {
    Vectors vectors;
    OP_REQUIRES_OK(context, vectors.Read(context, lead_, wide_));
    Tensor* products;
    OP_REQUIRES_OK(context, context->allocate_output(0, vectors.ProductShape(lead_), &products));
    float* out = products->flat<float>().data();
    const auto forward = vectors.wide ? WideForward : Forward;
    ForExamples(context, vectors.batch, vectors.count * vectors.count * vectors.dim / 8,
                [&](int64_t first, int64_t last) { forward(vectors.begins, vectors.dim, lead_, first, last, out); });
  }
};

class PairsGrad : public PairsKernel {
 public:
  using PairsKernel::PairsKernel;

  void Compute(OpKernelContext* context) override {
    Vectors vectors;
    OP_REQUIRES_OK(context, vectors.Read(context, lead_, wide_));
    const Tensor& upstream = context->input(vectors.count);
    OP_REQUIRES(context, upstream.shape() == vectors.ProductShape(lead_),
                absl::InvalidArgumentError("the gradient must have the shape of the products"));
    std::vector<float*> gradients;
    for (int64_t i = 0; i < vectors.count; ++i) {
      Tensor* gradient;
      OP_REQUIRES_OK(context, context->allocate_output(i, vectors.inputs[0].shape(), &gradient));
      gradients.push_back(gradient->flat<float>().data());
    }
    const float* g = upstream.flat<float>().data();
    const auto backward = vectors.wide ? WideBackward : Backward;
    ForExamples(context, vectors.batch, vectors.count * vectors.count * vectors.dim / 6,
                [&](int64_t first, int64_t last) {
                  backward(vectors.begins, vectors.dim, lead_, first, last, g, gradients);
                });
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbexpPairs").Device(DEVICE_CPU), Pairs);
REGISTER_KERNEL_BUILDER(Name("EmbexpPairsGrad").Device(DEVICE_CPU), PairsGrad);

}  // namespace embexp
