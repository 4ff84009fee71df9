// Dot products of all pairs of vectors of an example, behind some of the vectors themselves, and their gradient, example
// by example in the nearest cache.
//
// Each number is one chain of fused multiply-adds in rising order, as oneDNN's matrix products of such sizes are. Whether
// the bits are the same on a machine is tried there before this is used (see `pair_products.py`).

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

int64_t Padded(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

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

// The vectors of a call.
struct Vectors {
  OpInputList inputs;
  std::vector<const float*> begins;
  int64_t batch, dim, count;

  // `lead`: how many of them stand before the products.
  absl::Status Read(OpKernelContext* context, int64_t lead) {
    TF_RETURN_IF_ERROR(context->input_list("vectors", &inputs));
    TF_RETURN_IF_ERROR(Begins(inputs, &begins));
    batch = inputs[0].dim_size(0), dim = inputs[0].dim_size(1), count = inputs.size();
    return lead <= count ? absl::OkStatus() : absl::InvalidArgumentError("there are not so many vectors to lead");
  }
  TensorShape ProductShape(int64_t lead) const { return TensorShape({batch, lead * dim + count * (count - 1) / 2}); }
};

template <typename Work>
void ForExamples(OpKernelContext* context, int64_t batch, int64_t cycles, const Work& work) {
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(batch, cycles, work);
}

class Pairs : public OpKernel {
 public:
  explicit Pairs(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lead", &lead_));
  }

  void Compute(OpKernelContext* context) override {
    Vectors vectors;
    OP_REQUIRES_OK(context, vectors.Read(context, lead_));
    Tensor* products;
    OP_REQUIRES_OK(context, context->allocate_output(0, vectors.ProductShape(lead_), &products));
    float* out = products->flat<float>().data();
    ForExamples(context, vectors.batch, vectors.count * vectors.count * vectors.dim / 8,
                [&](int64_t first, int64_t last) { Forward(vectors.begins, vectors.dim, lead_, first, last, out); });
  }

 private:
  int64_t lead_;
};

class PairsGrad : public OpKernel {
 public:
  explicit PairsGrad(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lead", &lead_));
  }

  void Compute(OpKernelContext* context) override {
    Vectors vectors;
    OP_REQUIRES_OK(context, vectors.Read(context, lead_));
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
    ForExamples(context, vectors.batch, vectors.count * vectors.count * vectors.dim / 6,
                [&](int64_t first, int64_t last) {
                  Backward(vectors.begins, vectors.dim, lead_, first, last, g, gradients);
                });
  }

 private:
  int64_t lead_;
};

REGISTER_KERNEL_BUILDER(Name("EmbexpPairs").Device(DEVICE_CPU), Pairs);
REGISTER_KERNEL_BUILDER(Name("EmbexpPairsGrad").Device(DEVICE_CPU), PairsGrad);

}  // namespace embexp
