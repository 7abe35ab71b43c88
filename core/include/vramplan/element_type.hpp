// How numbers are stored. A storage format is a row {block_elements, block_bytes}: "4.5 bits" never exists as a number.
#pragma once

#include <array>
#include <cstdint>

#include "vramplan/units.hpp"

namespace vramplan {

// Element types of live tensors.
enum class ElementType : std::uint8_t { fp32, bf16, fp16, fp8, int8, int64, bool8 };

[[nodiscard]] constexpr std::int64_t bytes_per_element(ElementType type) {
  switch (type) {
    case ElementType::fp32: return 4;
    case ElementType::bf16:
    case ElementType::fp16: return 2;
    case ElementType::int64: return 8;
    case ElementType::fp8:
    case ElementType::int8:
    case ElementType::bool8: return 1;
  }
  return 0;
}

// How the base weights are stored (`training.base_weights`).
enum class WeightFormat : std::uint8_t { fp32, bf16, fp16, int8, nf4, nf4_dq, fp4, int4_gptq, fp8, mxfp4 };
inline constexpr std::array kWeightFormats = {
    WeightFormat::fp32,   WeightFormat::bf16, WeightFormat::fp16,      WeightFormat::int8, WeightFormat::nf4,
    WeightFormat::nf4_dq, WeightFormat::fp4,  WeightFormat::int4_gptq, WeightFormat::fp8,  WeightFormat::mxfp4};

// A quantizer stores `elements` values in `bytes` bytes; constants come on top, one group per so many values.
struct BlockFormat {
  std::int64_t elements = 1;
  std::int64_t bytes = 1;
};

// Bytes of n values in a block format; the last block is whole.
[[nodiscard]] constexpr Bytes bytes_in_blocks(std::int64_t n, BlockFormat f) {
  return Bytes(saturating_multiply(divide_up(n, f.elements), f.bytes));
}

[[nodiscard]] constexpr bool is_quantized(WeightFormat f) {
  return f != WeightFormat::fp32 && f != WeightFormat::bf16 && f != WeightFormat::fp16;
}

}  // namespace vramplan
