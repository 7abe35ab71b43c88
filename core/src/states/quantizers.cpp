// Storage formats of quantized weights and the constants beside them.
// NF4, double quantization: Dettmers et al. 2023 (arXiv 2305.14314), bitsandbytes/functional.py. LLM.int8: Dettmers et
// al. 2022 (arXiv 2208.07339). GPTQ: Frantar et al. 2022 (arXiv 2210.17323) in AutoGPTQ's layout with groups of 128.
#include "vramplan/states.hpp"

namespace vramplan {

BlockFormat storage_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::fp32: return {1, 4};
    case WeightFormat::bf16:
    case WeightFormat::fp16: return {1, 2};
    case WeightFormat::int8:
    case WeightFormat::fp8: return {1, 1};
    case WeightFormat::nf4:
    case WeightFormat::nf4_dq:
    case WeightFormat::fp4:
    case WeightFormat::int4_gptq:
    case WeightFormat::mxfp4: return {2, 1};
  }
  return {1, 2};
}

void add_quantization_constants(Contributions& out, const Inventory& n, WeightFormat base, std::int64_t ranks) {
  constexpr Component kConstants = Component::quantization_constants;
  switch (base) {
    case WeightFormat::nf4:
    case WeightFormat::fp4:  // FP32 absmax per 64 values
      out.add({kConstants, 4, {{"B_absmax", n.absmax_blocks}}, ranks});
      break;
    case WeightFormat::nf4_dq:  // 8-bit absmax per 64 values, FP32 per 256 of those
      out.add({kConstants, 1, {{"B_absmax", n.absmax_blocks}}, ranks});
      out.add({kConstants, 4, {{"B_absmax_2", n.absmax_second_blocks}}, ranks});
      break;
    case WeightFormat::int8:  // FP32 scale a row
      out.add({kConstants, 4, {{"rows", n.rows.value}}, ranks});
      break;
    case WeightFormat::int4_gptq:  // per group and output: FP16 scale, packed zero; per input: group index
      out.add({kConstants, 1, {{"B_group", divide_up(saturating_multiply(n.gptq_groups, 5), 2)}}, ranks});
      out.add({kConstants, 4, {{"columns", n.columns.value}}, ranks});
      break;
    case WeightFormat::mxfp4:  // 8-bit exponent per 32 values
      out.add({kConstants, 1, {{"B_scale", divide_up(n.block_linear.value, 32)}}, ranks});
      break;
    case WeightFormat::fp32:
    case WeightFormat::bf16:
    case WeightFormat::fp16:
    case WeightFormat::fp8: break;
  }
}

}  // namespace vramplan
