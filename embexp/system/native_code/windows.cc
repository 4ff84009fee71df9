// The maximum over a text of a convolution's feature maps, and its gradient: nothing is as large as the maps, and windows
// in the padding are not computed.
//
// The same bits as TensorFlow's operations (see `models/texts.py`): a window's sum is one chain of fused multiply-adds over
// its words and their numbers in rising order, as oneDNN's convolutions are, and gradients are sums of rounded products,
// in the order of texts or maps. Whether they agree on a machine is tried there before this is used.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace embexp {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kLanes = 8;   // of AVX
constexpr int64_t kBlock = 16;  // maps that lie together in a packed kernel
constexpr int kRows = 6;        // windows at a time: one chain alone would wait for each of its additions

REGISTER_OP("EmbexpWindows")
    .Input("words: float")
    .Input("lengths: int32")
    .Input("kernel: float")
    .Output("maxima: float")
    .Output("positions: int32")
    .Attr("wide: bool = true")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle words, kernel;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 3, &words));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 3, &kernel));
      for (int i = 0; i < 2; ++i) context->set_output(i, context->Matrix(context->Dim(words, 0), context->Dim(kernel, 2)));
      return absl::OkStatus();
    });

REGISTER_OP("EmbexpWindowsGrad")
    .Input("words: float")
    .Input("kernel: float")
    .Input("positions: int32")
    .Input("upstream: float")
    .Output("of_words: float")
    .Output("of_kernel: float")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->input(0));
      context->set_output(1, context->input(1));
      return absl::OkStatus();
    });

// The sizes of a call: `steps` numbers make a window.
struct Sizes {
  int64_t batch, longest, dim, width, maps, steps;

  absl::Status Read(const Tensor& words, const Tensor& kernel) {
    if (words.dims() != 3 || kernel.dims() != 3 || words.dim_size(2) != kernel.dim_size(1)) {
      return absl::InvalidArgumentError("words must be [B, L, d], and the kernel [w, d, m]");
    }
    batch = words.dim_size(0), longest = words.dim_size(1), dim = words.dim_size(2);
    width = kernel.dim_size(0), maps = kernel.dim_size(2), steps = width * dim;
    return absl::OkStatus();
  }
  int64_t Blocks() const { return (maps + kBlock - 1) / kBlock; }
};

template <typename Work>
void Parallel(OpKernelContext* context, int64_t count, int64_t cycles, const Work& work) {
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, cycles, work);
}

// Takes R windows from number `at` on into the maxima of C blocks of maps, and into their positions. The windows begin
// `stride` numbers after each other; the packed kernel is [C, steps, kBlock]. What is not a number stays a maximum.
template <int R, int C>
__attribute__((target("avx512f"))) void WideTile(const float* windows, int64_t stride, const float* kernel,
                                                 int64_t steps, int at, float* maxima, int32_t* positions) {
  __m512 sums[R][C];
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) sums[i][j] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < steps; ++k) {
    __m512 factors[C];
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) factors[j] = _mm512_loadu_ps(kernel + (j * steps + k) * kBlock);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __m512 factor = _mm512_set1_ps(windows[i * stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) sums[i][j] = _mm512_fmadd_ps(factor, factors[j], sums[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < C; ++j) {
    __m512 best = _mm512_loadu_ps(maxima + j * kBlock);
    __m512i position = _mm512_loadu_si512(positions + j * kBlock);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __mmask16 more = _mm512_cmp_ps_mask(sums[i][j], best, _CMP_NLE_UQ);
      const __mmask16 taken = _mm512_mask_cmp_ps_mask(more, best, best, _CMP_ORD_Q);
      best = _mm512_mask_mov_ps(best, taken, sums[i][j]);
      position = _mm512_mask_set1_epi32(position, taken, at + i);
    }
    _mm512_storeu_ps(maxima + j * kBlock, best);
    _mm512_storeu_si512(positions + j * kBlock, position);
  }
}

// The same of one block, on processors without AVX-512.
template <int R>
__attribute__((target("avx2,fma"))) void NarrowTile(const float* windows, int64_t stride, const float* kernel,
                                                    int64_t steps, int at, float* maxima, int32_t* positions) {
  __m256 sums[R][2];
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  for (int64_t k = 0; k < steps; ++k) {
    const __m256 low = _mm256_loadu_ps(kernel + k * kBlock), high = _mm256_loadu_ps(kernel + k * kBlock + kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __m256 factor = _mm256_broadcast_ss(windows + i * stride + k);
      sums[i][0] = _mm256_fmadd_ps(factor, low, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(factor, high, sums[i][1]);
    }
  }
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    float* places = reinterpret_cast<float*>(positions) + j * kLanes;
    __m256 best = _mm256_loadu_ps(maxima + j * kLanes), position = _mm256_loadu_ps(places);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __m256 taken = _mm256_and_ps(_mm256_cmp_ps(sums[i][j], best, _CMP_NLE_UQ),
                                         _mm256_cmp_ps(best, best, _CMP_ORD_Q));
      best = _mm256_blendv_ps(best, sums[i][j], taken);
      position = _mm256_blendv_ps(position, _mm256_castsi256_ps(_mm256_set1_epi32(at + i)), taken);
    }
    _mm256_storeu_ps(maxima + j * kLanes, best);
    _mm256_storeu_ps(places, position);
  }
}

using Tile = void (*)(const float*, int64_t, const float*, int64_t, int, float*, int32_t*);

constexpr int kWidest = 4;
#define EMBEXP_WIDE(R) {WideTile<R, 1>, WideTile<R, 2>, WideTile<R, 3>, WideTile<R, 4>}
constexpr Tile kWide[kRows][kWidest] = {EMBEXP_WIDE(1), EMBEXP_WIDE(2), EMBEXP_WIDE(3),
                                        EMBEXP_WIDE(4), EMBEXP_WIDE(5), EMBEXP_WIDE(6)};
constexpr Tile kNarrow[kRows] = {NarrowTile<1>, NarrowTile<2>, NarrowTile<3>,
                                 NarrowTile<4>, NarrowTile<5>, NarrowTile<6>};

// The kernel [steps, maps] as [blocks, steps, kBlock], with zeros behind the last map.
void Pack(const float* kernel, const Sizes& sizes, float* packed) {
  for (int64_t first = 0; first < sizes.maps; first += kBlock) {
    const int64_t count = std::min(kBlock, sizes.maps - first);
    for (int64_t k = 0; k < sizes.steps; ++k, packed += kBlock) {
      std::fill(std::copy_n(kernel + k * sizes.maps + first, count, packed), packed + kBlock, 0.0f);
    }
  }
}

// `wide`: whether AVX-512 may be used.
class Windows : public OpKernel {
 public:
  explicit Windows(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("wide", &wide_));
    wide_ = wide_ && __builtin_cpu_supports("avx512f");
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &words = context->input(0), &lengths = context->input(1), &kernel = context->input(2);
    Sizes sizes;
    OP_REQUIRES_OK(context, sizes.Read(words, kernel));
    OP_REQUIRES(context, lengths.shape() == TensorShape({sizes.batch}),
                absl::InvalidArgumentError("there must be one length per text"));
    OP_REQUIRES(context, __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"),
                absl::UnimplementedError("this processor has no fused multiply-add"));
    Tensor *maxima, *positions, packed;
    const TensorShape shape({sizes.batch, sizes.maps});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &maxima));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &positions));
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_FLOAT,
                                                   TensorShape({sizes.Blocks(), sizes.steps, kBlock}), &packed));
    Pack(kernel.flat<float>().data(), sizes, packed.flat<float>().data());
    const float *x = words.flat<float>().data(), *w = packed.flat<float>().data();
    const int32_t* length = lengths.flat<int32_t>().data();
    float* best = maxima->flat<float>().data();
    int32_t* at = positions->flat<int32_t>().data();
    Parallel(context, sizes.batch, sizes.longest * sizes.steps * sizes.maps / 32, [&](int64_t first, int64_t last) {
      const int64_t edge = (sizes.width - 1) * sizes.dim, padded = sizes.Blocks() * kBlock;
      std::vector<float> text(2 * edge + sizes.longest * sizes.dim, 0.0f), of_text(padded);
      std::vector<int32_t> places(padded);
      for (int64_t b = first; b < last; ++b) {
        const int64_t count = std::clamp<int64_t>(length[b], 0, sizes.longest);
        const float* begin = x + b * sizes.longest * sizes.dim;
        std::fill_n(std::copy_n(begin, count * sizes.dim, text.data() + edge), edge, 0.0f);
        of_text.assign(padded, -std::numeric_limits<float>::infinity());
        places.assign(padded, count ? 0 : -1);  // -1: a window that ends before the text
        if (count) Text(text.data(), count + sizes.width - 1, w, sizes, of_text.data(), places.data());
        std::copy_n(of_text.data(), sizes.maps, best + b * sizes.maps);
        std::copy_n(places.data(), sizes.maps, at + b * sizes.maps);
      }
    });
  }

 private:
  // Of a text that is padded with zeros, so that it has so many windows.
  void Text(const float* text, int64_t windows, const float* kernel, const Sizes& sizes, float* maxima,
            int32_t* positions) const {
    const int64_t blocks = sizes.Blocks(), tiles = (windows + kRows - 1) / kRows;
    const int64_t groups = wide_ ? (blocks + kWidest - 1) / kWidest : blocks;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t block = group * blocks / groups, next = (group + 1) * blocks / groups, map = block * kBlock;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t at = tile * windows / tiles, rows = (tile + 1) * windows / tiles - at;
        const Tile take = wide_ ? kWide[rows - 1][next - block - 1] : kNarrow[rows - 1];
        take(text + at * sizes.dim, sizes.dim, kernel + map * sizes.steps, sizes.steps, at, maxima + map,
             positions + map);
      }
    }
  }

  bool wide_;
};

// sum += factor * numbers, rounded twice.
inline void Add(float factor, const float* numbers, int64_t count, float* sum) {
  const __m256 factors = _mm256_set1_ps(factor);
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const __m256 product = _mm256_mul_ps(factors, _mm256_loadu_ps(numbers + k));
    _mm256_storeu_ps(sum + k, _mm256_add_ps(_mm256_loadu_ps(sum + k), product));
  }
  for (; k < count; ++k) sum[k] += factor * numbers[k];
}

class WindowsGrad : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor &words = context->input(0), &kernel = context->input(1), &positions = context->input(2),
                 &upstream = context->input(3);
    Sizes sizes;
    OP_REQUIRES_OK(context, sizes.Read(words, kernel));
    const TensorShape shape({sizes.batch, sizes.maps});
    OP_REQUIRES(context, positions.shape() == shape && upstream.shape() == shape,
                absl::InvalidArgumentError("positions and the gradient must be [B, m]"));
    Tensor *of_words, *of_kernel, turned;
    OP_REQUIRES_OK(context, context->allocate_output(0, words.shape(), &of_words));
    OP_REQUIRES_OK(context, context->allocate_output(1, kernel.shape(), &of_kernel));
    OP_REQUIRES_OK(context,
                   context->allocate_temp(tensorflow::DT_FLOAT, TensorShape({sizes.maps, sizes.steps}), &turned));
    const Taken taken{sizes, positions.flat<int32_t>().data(), upstream.flat<float>().data()};
    const float *x = words.flat<float>().data(), *w = kernel.flat<float>().data();
    float *by_map = turned.flat<float>().data(), *to_words = of_words->flat<float>().data(),
          *to_kernel = of_kernel->flat<float>().data();
    // Blocks of maps first: they need all texts, and leave the kernel turned for the texts, which need all maps.
    Parallel(context, sizes.Blocks(), kBlock * sizes.steps * (sizes.batch / 8 + 4), [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) ToKernel(taken, x, w, block * kBlock, by_map, to_kernel);
    });
    Parallel(context, sizes.batch, sizes.maps * sizes.steps / 8, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) ToWords(taken, by_map, b, to_words);
    });
  }

 private:
  // Of each text and map the window that was the maximum, and its gradient.
  struct Taken {
    const Sizes& sizes;
    const int32_t* positions;
    const float* upstream;

    // Calls `work(gradient, word, tap, count)` with the words of the window of text b and map m that are in the text,
    // unless its gradient is 0, as dropout and ReLU leave most.
    template <typename Work>
    void Window(int64_t b, int64_t m, const Work& work) const {
      const float gradient = upstream[b * sizes.maps + m];
      if (gradient == 0.0f) return;
      const int64_t begin = positions[b * sizes.maps + m] - (sizes.width - 1);
      const int64_t first = std::max<int64_t>(begin, 0), last = std::min(begin + sizes.width, sizes.longest);
      if (first < last) work(gradient, first, first - begin, last - first);
    }
  };

  // Some columns of the kernel's gradient [steps, maps]; writes the same maps of the turned kernel [maps, steps].
  static void ToKernel(const Taken& taken, const float* words, const float* kernel, int64_t first, float* turned,
                       float* of_kernel) {
    const Sizes& sizes = taken.sizes;
    const int64_t count = std::min(kBlock, sizes.maps - first);
    for (int64_t k = 0; k < sizes.steps; ++k) {
      for (int64_t m = 0; m < count; ++m) turned[(first + m) * sizes.steps + k] = kernel[k * sizes.maps + first + m];
    }
    std::vector<float> sums(count * sizes.steps, 0.0f);
    for (int64_t b = 0; b < sizes.batch; ++b) {
      const float* text = words + b * sizes.longest * sizes.dim;
      for (int64_t m = 0; m < count; ++m) {
        taken.Window(b, first + m, [&](float gradient, int64_t word, int64_t tap, int64_t length) {
          Add(gradient, text + word * sizes.dim, length * sizes.dim, &sums[m * sizes.steps + tap * sizes.dim]);
        });
      }
    }
    for (int64_t k = 0; k < sizes.steps; ++k) {
      for (int64_t m = 0; m < count; ++m) of_kernel[k * sizes.maps + first + m] = sums[m * sizes.steps + k];
    }
  }

  // The gradient of text b.
  static void ToWords(const Taken& taken, const float* turned, int64_t b, float* of_words) {
    const Sizes& sizes = taken.sizes;
    float* text = of_words + b * sizes.longest * sizes.dim;
    std::fill_n(text, sizes.longest * sizes.dim, 0.0f);
    for (int64_t m = 0; m < sizes.maps; ++m) {
      taken.Window(b, m, [&](float gradient, int64_t word, int64_t tap, int64_t length) {
        Add(gradient, turned + m * sizes.steps + tap * sizes.dim, length * sizes.dim, text + word * sizes.dim);
      });
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbexpWindows").Device(DEVICE_CPU), Windows);
REGISTER_KERNEL_BUILDER(Name("EmbexpWindowsGrad").Device(DEVICE_CPU), WindowsGrad);

}  // namespace embexp
