// The rules of the optimizers of `optimizers.py`, of packets, and of single numbers for those at the end.
//
// Each has the bits of TensorFlow's operations: Eigen's functions, in the same order. A rule gets the learning rate, the
// gradient g, the row w and its slots, and changes the last two.

#ifndef EMBEXP_RULES_H_
#define EMBEXP_RULES_H_

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "unsupported/Eigen/CXX11/Tensor"

namespace embexp {

using Packet = Eigen::internal::packet_traits<float>::type;
constexpr int kPacket = Eigen::internal::packet_traits<float>::size;

// Adds a row to a sum of rows.
EIGEN_ALWAYS_INLINE void Add(const float* more, int64_t dim, float* sum) {
  using namespace Eigen::internal;
  int64_t at = 0;
  for (; at + kPacket <= dim; at += kPacket) {
    pstoreu(sum + at, padd(ploadu<Packet>(sum + at), ploadu<Packet>(more + at)));
  }
  for (; at < dim; ++at) sum[at] += more[at];
}

namespace functions {

using namespace Eigen::internal;

// Eigen's functors, as TensorFlow's operations call them: of packets, and of single numbers.
#define EMBEXP_UNARY(name, functor)                                                                   \
  EIGEN_ALWAYS_INLINE float name(float x) { return functor<float>()(x); }                            \
  EIGEN_ALWAYS_INLINE Packet name(const Packet& x) { return functor<float>().template packetOp<Packet>(x); }
EMBEXP_UNARY(OwnRsqrt, scalar_rsqrt_op)
EMBEXP_UNARY(Sqrt, scalar_sqrt_op)
EMBEXP_UNARY(OwnInverse, scalar_inverse_op)
EMBEXP_UNARY(Log1p, scalar_log1p_op)
EMBEXP_UNARY(Expm1, scalar_expm1_op)
EIGEN_ALWAYS_INLINE float PowOf(float x, float y) { return scalar_pow_op<float, float>()(x, y); }
EIGEN_ALWAYS_INLINE Packet PowOf(const Packet& x, float y) {
  return scalar_pow_op<float, float>().packetOp(x, pset1<Packet>(y));
}

// What `portable.cc` has in their place, where this process has loaded it.
inline const bool portable = std::getenv("EMBEXP_PORTABLE") != nullptr;
template <typename P>
EIGEN_ALWAYS_INLINE P ExactInverse(const P& x) {
  return pdiv(pset1<P>(1.0f), x);
}
template <typename P>
EIGEN_ALWAYS_INLINE P ExactRsqrt(const P& x) {
  return ExactInverse(Sqrt(x));
}
template <typename P>
EIGEN_ALWAYS_INLINE P Inverse(const P& x) {
  return portable ? ExactInverse(x) : OwnInverse(x);
}
template <typename P>
EIGEN_ALWAYS_INLINE P Rsqrt(const P& x) {
  return portable ? ExactRsqrt(x) : OwnRsqrt(x);
}

}  // namespace functions

// What the rules of `optimizers.py` become in a graph.
struct Graph {
  bool optimized;      // c * (x * x) is (c * x) * x, and some powers are other functions
  bool swapped;        // c * x * y is (c * y) * x, of a scalar c
  bool by_reciprocal;  // a division by the learning rate is a product with its reciprocal
  template <typename P>
  EIGEN_ALWAYS_INLINE P Product(const P& c, const P& x, const P& y) const {
    using namespace Eigen::internal;
    return swapped ? pmul(pmul(c, y), x) : pmul(pmul(c, x), y);
  }
  template <typename P>
  EIGEN_ALWAYS_INLINE P Pow(const P& x, float y) const {
    using namespace Eigen::internal;
    if (y == 0.5f && optimized) return functions::Sqrt(x);
    if (y == -0.5f && optimized) return functions::Rsqrt(x);
    if (y == 0.0f && optimized) return pset1<P>(1.0f);
    if (y == 1.0f && optimized) return x;
    if (y == -1.0f && optimized) return functions::Inverse(x);
    if (y == 2.0f && optimized) return pmul(x, x);
    if (y == 3.0f && optimized) return pmul(pmul(x, x), x);
    return functions::PowOf(x, y);
  }
};

struct Sgd {
  static constexpr int kSlots = 0, kRowSlots = 0;
  Sgd(const std::vector<float>&, const Graph&) {}
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P rate, P g, P& w, P*) const {
    using namespace Eigen::internal;
    w = psub(w, pmul(rate, g));
  }
};

// One number for each row, a mean of squares, decides the learning rate of the row.
struct RowwiseAdagrad : Sgd {
  static constexpr int kRowSlots = 1;
  float epsilon_;
  RowwiseAdagrad(const std::vector<float>& c, const Graph& graph) : Sgd(c, graph), epsilon_(c[0]) {}
  float Rate(float rate, float mean_square, float* slot) const {
    *slot += mean_square;
    return rate / (std::sqrt(*slot) + epsilon_);
  }
};

struct Adagrad {
  static constexpr int kSlots = 1, kRowSlots = 0;
  Graph graph_;
  Adagrad(const std::vector<float>&, const Graph& graph) : graph_(graph) {}
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P rate, P g, P& w, P* slots) const {
    using namespace Eigen::internal;
    slots[0] = padd(slots[0], pmul(g, g));
    w = psub(w, graph_.Product(rate, g, functions::Rsqrt(slots[0])));
  }
};

struct AdagradMomentum {
  static constexpr int kSlots = 2, kRowSlots = 0;
  float momentum_, beta_2_, rest_2_, epsilon_, power_;
  bool nesterov_;
  Graph graph_;
  AdagradMomentum(const std::vector<float>& c, const Graph& graph)
      : momentum_(c[0]), beta_2_(c[1]), rest_2_(c[2]), epsilon_(c[3]), power_(c[4]), nesterov_(c[5] != 0.0f),
        graph_(graph) {}
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P rate, P g, P& w, P* slots) const {
    using namespace Eigen::internal;
    const P momentum = pset1<P>(momentum_), rest = pset1<P>(rest_2_);
    if (beta_2_ == 1.0f) {
      slots[0] = padd(slots[0], pmul(g, g));
    } else {
      const P more = graph_.optimized ? pmul(pmul(rest, g), g) : pmul(rest, pmul(g, g));
      slots[0] = padd(pmul(pset1<P>(beta_2_), slots[0]), more);
    }
    const P base = padd(slots[0], pset1<P>(epsilon_));
    const P s = pmul(power_ == -0.5f ? functions::Rsqrt(base) : graph_.Pow(base, power_), g);
    slots[1] = momentum_ != 0.0f ? padd(pmul(momentum, slots[1]), s) : s;
    w = psub(w, pmul(rate, nesterov_ ? padd(pmul(momentum, slots[1]), s) : slots[1]));
  }
};

struct Adam {
  static constexpr int kSlots = 2, kRowSlots = 0;
  float beta_1_, rest_1_, beta_2_, rest_2_, epsilon_;
  bool inside_;
  Graph graph_;
  Adam(const std::vector<float>& c, const Graph& graph)
      : beta_1_(c[0]), rest_1_(c[1]), beta_2_(c[2]), rest_2_(c[3]), epsilon_(c[4]), inside_(c[5] != 0.0f),
        graph_(graph) {}
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P rate, P g, P& w, P* slots) const {
    using namespace Eigen::internal;
    const P epsilon = pset1<P>(epsilon_);
    slots[0] = padd(pmul(pset1<P>(beta_1_), slots[0]), pmul(pset1<P>(rest_1_), g));
    slots[1] = padd(pmul(pset1<P>(beta_2_), slots[1]), pmul(pmul(pset1<P>(rest_2_), g), g));
    w = psub(w, inside_ ? graph_.Product(rate, slots[0], functions::Rsqrt(padd(slots[1], epsilon)))
                        : pmul(rate, pdiv(slots[0], padd(functions::Sqrt(slots[1]), epsilon))));
  }
};

struct Ftrl {
  static constexpr int kSlots = 2, kRowSlots = 0;
  float power_, l1_, l2_, beta_;
  bool by_rate_;
  Graph graph_;
  Ftrl(const std::vector<float>& c, const Graph& graph)
      : power_(c[0]), l1_(c[1]), l2_(c[2]), beta_(c[3]), by_rate_(c[4] != 0.0f), graph_(graph) {}
  template <typename P>
  EIGEN_ALWAYS_INLINE void operator()(P rate, P g, P& w, P* slots) const {
    using namespace Eigen::internal;
    const P before = slots[0], square = pmul(g, g), beta = pset1<P>(beta_), l2 = pset1<P>(l2_), two = pset1<P>(2.0f);
    slots[0] = padd(before, square);
    P power, delta;
    if (power_ == 0.5f) {
      power = functions::Sqrt(slots[0]);
      delta = pdiv(square, padd(power, functions::Sqrt(before)));
    } else {
      power = graph_.Pow(slots[0], power_);
      const P grown = functions::Log1p(pdiv(square, before));
      delta = pmul(graph_.Pow(before, power_), functions::Expm1(pmul(pset1<P>(power_), grown)));
    }
    P bound = pset1<P>(l1_), denominator;
    if (by_rate_) {
      slots[1] = psub(padd(slots[1], pmul(rate, g)), pmul(delta, w));
      bound = pmul(rate, bound);
      denominator = padd(power, padd(beta, pmul(pmul(two, rate), l2)));
    } else if (graph_.by_reciprocal) {
      const P reciprocal = pdiv(pset1<P>(1.0f), rate);
      slots[1] = psub(padd(slots[1], g), pmul(pmul(reciprocal, delta), w));
      denominator = padd(pmul(padd(power, beta), reciprocal), pmul(two, l2));
    } else {
      slots[1] = psub(padd(slots[1], g), pdiv(pmul(delta, w), rate));
      denominator = padd(pdiv(padd(power, beta), rate), pmul(two, l2));
    }
    const P linear = slots[1];
    const P numerator =
        l1_ != 0.0f ? psub(pmax(pmin(linear, bound), pnegate(bound)), linear) : pnegate(linear);
    w = pdiv(numerator, denominator);
  }
};

// The sum of the squares of a row, in the order of `_row_sums` in `optimizers.py`; of as many squares as there is room.
inline float SquaredNorm(const float* row, int64_t dim, float* squares) {
  for (int64_t at = 0; at < dim; ++at) squares[at] = row[at] * row[at];
  while (dim > 1) {
    int64_t half = 1;
    while (2 * half < dim) half *= 2;
    for (int64_t at = 0; at + half < dim; ++at) squares[at] += squares[at + half];
    dim = half;
  }
  return squares[0];
}

// Least and largest value that a number may have.
struct Bounds {
  float low, high;
  bool any;
  explicit Bounds(const std::vector<float>& given)
      : low(given.empty() ? 0.0f : given[0]), high(given.empty() ? 0.0f : given[1]), any(!given.empty()) {}
  template <typename P>
  EIGEN_ALWAYS_INLINE P operator()(const P& x) const {
    using namespace Eigen::internal;
    return any ? pmin(pmax(x, pset1<P>(low)), pset1<P>(high)) : x;  // of NaN, the first argument
  }
};

}  // namespace embexp

#endif  // EMBEXP_RULES_H_
