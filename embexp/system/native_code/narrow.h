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

// How rows of 16 bits are rounded at a step.
struct Rounding {
  const std::vector<int64_t>& key;  // two words of 32 bits; none: to the nearest
  int64_t step;

  void Narrow(const float* from, tensorflow::DataType type, int64_t count, int64_t row, int variable, void* to) const {
    auto* numbers = static_cast<uint16_t*>(to);
    for (int64_t start = 0; start < count; start += kColumnsAtOnce) {
      const int64_t some = std::min(kColumnsAtOnce, count - start);
      uint32_t words[kColumnsAtOnce / 2];
      if (!key.empty() && some > kColumnsAtOnce / 2) {
        Random<kBlocksAtOnce>(start / kColumnsPerBlock, row, variable, words);
      } else if (!key.empty()) {
        Random<kBlocksAtOnce / 2>(start / kColumnsPerBlock, row, variable, words);
      }
      const auto* random = key.empty() ? nullptr : reinterpret_cast<const uint16_t*>(words);
      if (type == tensorflow::DT_BFLOAT16) {
        ToBfloat16(from + start, random, some, numbers + start);
      } else {
        ToHalf(from + start, random, some, numbers + start);
      }
    }
  }

 private:
  static constexpr int64_t kBlocksAtOnce = 8, kColumnsAtOnce = kBlocksAtOnce * kColumnsPerBlock;

  // Philox of some blocks from the first on, side by side, so that the compiler computes them in one vector.
  template <int kBlocks>
  void Random(int64_t first, int64_t row, int variable, uint32_t* words) const {
    uint32_t a[kBlocks], b[kBlocks], c[kBlocks], d[kBlocks];
    for (int n = 0; n < kBlocks; ++n) {
      a[n] = static_cast<uint32_t>(first + n) | static_cast<uint32_t>(variable) << 24;
      b[n] = static_cast<uint32_t>(row);
      c[n] = static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32);
      d[n] = static_cast<uint32_t>(step);
    }
    uint32_t key_0 = static_cast<uint32_t>(key[0]), key_1 = static_cast<uint32_t>(key[1]);
    for (int round = 0; round < 10; ++round) {
      for (int n = 0; n < kBlocks; ++n) {
        const uint64_t one = uint64_t{0xD2511F53} * a[n], two = uint64_t{0xCD9E8D57} * c[n];
        a[n] = static_cast<uint32_t>(two >> 32) ^ b[n] ^ key_0;
        b[n] = static_cast<uint32_t>(two);
        c[n] = static_cast<uint32_t>(one >> 32) ^ d[n] ^ key_1;
        d[n] = static_cast<uint32_t>(one);
      }
      key_0 += 0x9E3779B9;
      key_1 += 0xBB67AE85;
    }
    for (int n = 0; n < kBlocks; ++n) {
      words[4 * n] = a[n], words[4 * n + 1] = b[n], words[4 * n + 2] = c[n], words[4 * n + 3] = d[n];
    }
  }

  static uint32_t Bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }

  static bool Finite(const float* from, int64_t count) {
    uint32_t most = 0;
    for (int64_t n = 0; n < count; ++n) most = std::max(most, Bits(from[n]) & 0x7F800000);
    return most != 0x7F800000;
  }

  static void ToBfloat16(const float* from, const uint16_t* random, int64_t count, uint16_t* to) {
    if (random != nullptr && Finite(from, count)) {
      for (int64_t n = 0; n < count; ++n) to[n] = static_cast<uint16_t>((Bits(from[n]) + random[n]) >> 16);
      return;
    }
    for (int64_t n = 0; n < count; ++n) {
      const uint32_t bits = Bits(from[n]);
      to[n] = random != nullptr && (bits & 0x7F800000) != 0x7F800000
                  ? static_cast<uint16_t>((bits + random[n]) >> 16)
                  : Eigen::numext::bit_cast<uint16_t>(static_cast<Eigen::bfloat16>(from[n]));
    }
  }

  static void ToHalf(const float* from, const uint16_t* random, int64_t count, uint16_t* to) {
    for (int64_t n = 0; n < count; ++n) {
      const uint32_t bits = Bits(from[n]), exponent = bits & 0x7F800000;
      float rounded = from[n];
      if (random != nullptr && exponent != 0x7F800000) {
        if (exponent >= 113u << 23) {  // at least 2^-14: 10 bits of the mantissa are left
          const uint32_t kept = (bits + (random[n] >> 3)) & ~uint32_t{0x1FFF};
          std::memcpy(&rounded, &kept, sizeof kept);
        } else {  // multiples of 2^-24
          rounded = std::copysign(std::floor(std::fabs(from[n]) * 0x1p24f + random[n] * 0x1p-16f) * 0x1p-24f, from[n]);
        }
      }
      to[n] = Eigen::numext::bit_cast<uint16_t>(static_cast<Eigen::half>(rounded));
    }
  }
};

}  // namespace embexp

#endif  // EMBEXP_NARROW_H_
