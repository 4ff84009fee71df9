// Rows of 16 bits, as float32 while they are computed with, and rounded when they are written.
//
// Stochastic rounding: up with the probability of the part that is cut off, so that the mean of many roundings is exact.
// The random bits are those of Philox4x32-10 (Salmon et al. 2011: "Parallel random numbers: as easy as 1, 2, 3") at a
// counter of variable, block of eight columns, row and step, so that they depend on nothing else.

#ifndef EMBEXP_NARROW_H_
#define EMBEXP_NARROW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensorflow/core/framework/types.h"

namespace embexp {

constexpr int64_t kColumnsPerBlock = 8;

inline bool IsRowType(tensorflow::DataType type) {
  return type == tensorflow::DT_FLOAT || type == tensorflow::DT_BFLOAT16 || type == tensorflow::DT_HALF;
}

// Numbers of a type as float32, which has them all.
inline void Widen(const void* from, tensorflow::DataType type, int64_t count, float* to) {
  if (type == tensorflow::DT_BFLOAT16) {
    const auto* numbers = static_cast<const uint16_t*>(from);
    for (int64_t n = 0; n < count; ++n) {
      const uint32_t bits = static_cast<uint32_t>(numbers[n]) << 16;
      std::memcpy(to + n, &bits, sizeof bits);
    }
  } else if (type == tensorflow::DT_HALF) {
    const auto* numbers = static_cast<const Eigen::half*>(from);
    for (int64_t n = 0; n < count; ++n) to[n] = static_cast<float>(numbers[n]);
  } else {
    std::memcpy(to, from, count * sizeof(float));
  }
}

inline void Philox(uint32_t key_0, uint32_t key_1, uint32_t* counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0], second = uint64_t{0xCD9E8D57} * counter[2];
    counter[0] = static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key_0;
    counter[1] = static_cast<uint32_t>(second);
    counter[2] = static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key_1;
    counter[3] = static_cast<uint32_t>(first);
    key_0 += 0x9E3779B9;
    key_1 += 0xBB67AE85;
  }
}

// How rows of 16 bits are rounded at a step.
struct Rounding {
  std::vector<int64_t> key;  // two words of 32 bits; none: to the nearest
  int64_t step;

  void Narrow(const float* from, tensorflow::DataType type, int64_t count, int64_t row, int variable, void* to) const {
    if (type == tensorflow::DT_BFLOAT16) {
      Each(from, count, row, variable, static_cast<Eigen::bfloat16*>(to), ToBfloat16);
    } else {
      Each(from, count, row, variable, static_cast<Eigen::half*>(to), ToHalf);
    }
  }

 private:
  template <typename Number, typename Round>
  void Each(const float* from, int64_t count, int64_t row, int variable, Number* to, const Round& round) const {
    if (key.empty()) {
      for (int64_t n = 0; n < count; ++n) to[n] = static_cast<Number>(from[n]);
      return;
    }
    for (int64_t start = 0, block = 0; start < count; start += kColumnsPerBlock, ++block) {
      uint32_t random[4] = {static_cast<uint32_t>(block) | static_cast<uint32_t>(variable) << 24,
                            static_cast<uint32_t>(row), static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32),
                            static_cast<uint32_t>(step)};
      Philox(static_cast<uint32_t>(key[0]), static_cast<uint32_t>(key[1]), random);
      for (int64_t n = start; n < std::min(count, start + kColumnsPerBlock); ++n) {
        const int64_t of_block = n - start;
        to[n] = round(from[n], random[of_block / 2] >> 16 * (of_block % 2) & 0xFFFF);
      }
    }
  }

  static uint32_t Bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }

  static Eigen::bfloat16 ToBfloat16(float x, uint32_t random) {
    uint32_t bits = Bits(x);
    if ((bits & 0x7F800000) == 0x7F800000) return static_cast<Eigen::bfloat16>(x);  // infinity, or NaN
    return Eigen::numext::bit_cast<Eigen::bfloat16>(static_cast<uint16_t>((bits + random) >> 16));
  }

  static Eigen::half ToHalf(float x, uint32_t random) {
    const uint32_t bits = Bits(x), exponent = bits & 0x7F800000;
    if (exponent == 0x7F800000) return static_cast<Eigen::half>(x);
    float rounded;
    if (exponent >= 113u << 23) {  // at least 2^-14: 10 bits of the mantissa are left
      const uint32_t kept = (bits + (random >> 3)) & ~uint32_t{0x1FFF};
      std::memcpy(&rounded, &kept, sizeof kept);
    } else {  // multiples of 2^-24
      rounded = std::copysign(std::floor(std::fabs(x) * 0x1p24f + random * 0x1p-16f) * 0x1p-24f, x);
    }
    return static_cast<Eigen::half>(rounded);
  }
};

}  // namespace embexp

#endif  // EMBEXP_NARROW_H_
