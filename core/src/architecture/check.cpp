// What a hand-made, imported or overridden shape can get wrong. Fields have their names of config.json.
#include <algorithm>
#include <utility>

#include "vramplan/architecture.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

constexpr IntegerRange kOptionalWidth{0, limits::kWidth.maximum};
constexpr IntegerRange kOptionalRows{0, limits::kVocabulary.maximum};
constexpr IntegerRange kOptionalExperts{0, limits::kExperts.maximum};
constexpr IntegerRange kOptionalTokens{0, limits::kSequenceLength.maximum};

class Checker {
 public:
  explicit Checker(std::string prefix) : prefix_(std::move(prefix)) {}

  void range(const char* field, Dim value, IntegerRange range) {
    if (value >= range.minimum && value <= range.maximum) return;
    add({ProblemCode::out_of_range,
         prefix_ + '/' + field,
         {{"value", value}, {"minimum", range.minimum}, {"maximum", range.maximum}}});
  }

  void agree(bool consistent, const char* field, const char* other) {
    if (consistent) return;
    add({ProblemCode::inconsistent, prefix_ + '/' + field, {{"field", field}, {"other", other}}});
  }

  void add(Problem problem) {
    const auto same = [&](const Problem& p) { return p.code == problem.code && p.pointer == problem.pointer; };
    if (std::none_of(problems_.begin(), problems_.end(), same)) problems_.push_back(std::move(problem));
  }

  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] const Problems& problems() const { return problems_; }

 private:
  std::string prefix_;
  Problems problems_;
};

// b divides a; true when b is not positive, which is another problem.
bool divides(Dim a, Dim b) { return b <= 0 || a % b == 0; }

void check_indexer(const std::optional<Indexer>& indexer, Checker& check) {
  if (!indexer) return;
  check.range("index_n_heads", indexer->heads, limits::kHeads);
  check.range("index_head_dim", indexer->head_dim, limits::kWidth);
  check.range("q_lora_rank", indexer->query_input, limits::kWidth);
}

void check_kind(const Attention& a, Checker& check) {
  check.range("num_attention_heads", a.heads, limits::kHeads);
  check.range("num_key_value_heads", a.kv_heads, limits::kHeads);
  check.range("head_dim", a.head_dim, limits::kWidth);
  check.range("v_head_dim", a.v_head_dim, kOptionalWidth);
  check.range("sliding_window", a.window, kOptionalTokens);
  check.agree(divides(a.heads, a.kv_heads), "num_key_value_heads", "num_attention_heads");
  check_indexer(a.indexer, check);
}

void check_kind(const LatentAttention& a, Checker& check) {
  check.range("num_attention_heads", a.heads, limits::kHeads);
  check.range("q_lora_rank", a.q_lora_rank, kOptionalWidth);
  check.range("kv_lora_rank", a.kv_lora_rank, limits::kWidth);
  check.range("qk_nope_head_dim", a.qk_nope_head_dim, kOptionalWidth);
  check.range("qk_rope_head_dim", a.qk_rope_head_dim, kOptionalWidth);
  check.range("v_head_dim", a.v_head_dim, limits::kWidth);
  check_indexer(a.indexer, check);
}

void check_kind(const CompressedAttention& a, Checker& check) {
  check.range("num_attention_heads", a.heads, limits::kHeads);
  check.range("head_dim", a.head_dim, limits::kWidth);
  check.range("q_lora_rank", a.q_lora_rank, limits::kWidth);
  check.range("o_lora_rank", a.o_lora_rank, limits::kWidth);
  check.range("o_groups", a.o_groups, limits::kHeads);
  check.range("sliding_window", a.window, kOptionalTokens);
  check.range("compress_ratios", a.ratio, kOptionalWidth);
  check.agree(divides(a.heads, a.o_groups), "num_attention_heads", "o_groups");
  check_indexer(a.indexer, check);
}

void check_kind(const Mamba1& m, Checker& check) {
  check.range("mamba_expand", m.inner, limits::kWidth);
  check.range("mamba_d_state", m.state_size, limits::kWidth);
  check.range("mamba_d_conv", m.conv_kernel, limits::kWidth);
  check.range("mamba_dt_rank", m.dt_rank, limits::kWidth);
}

void check_kind(const Mamba2& m, Checker& check) {
  check.range("mamba_num_heads", m.heads, limits::kHeads);
  check.range("mamba_head_dim", m.head_dim, limits::kWidth);
  check.range("n_groups", m.groups, limits::kHeads);
  check.range("ssm_state_size", m.state_size, limits::kWidth);
  check.range("conv_kernel", m.conv_kernel, limits::kWidth);
  check.agree(divides(m.heads, m.groups), "n_groups", "mamba_num_heads");
}

void check_kind(const GatedDeltaNet& n, Checker& check) {
  check.range("linear_num_key_heads", n.key_heads, limits::kHeads);
  check.range("linear_key_head_dim", n.key_head_dim, limits::kWidth);
  check.range("linear_num_value_heads", n.value_heads, limits::kHeads);
  check.range("linear_value_head_dim", n.value_head_dim, limits::kWidth);
  check.range("linear_conv_kernel_dim", n.conv_kernel, limits::kWidth);
  check.agree(divides(n.value_heads, n.key_heads), "linear_num_key_heads", "linear_num_value_heads");
}

void check_kind(const KimiDeltaAttention& a, Checker& check) {
  check.range("linear_num_heads", a.heads, limits::kHeads);
  check.range("linear_head_dim", a.head_dim, limits::kWidth);
  check.range("short_conv_kernel_size", a.conv_kernel, limits::kWidth);
}

void check_kind(const LightningAttention& a, Checker& check) {
  check.range("num_attention_heads", a.heads, limits::kHeads);
  check.range("head_dim", a.head_dim, limits::kWidth);
}

void check_kind(const ShortConvolution& c, Checker& check) { check.range("conv_L_cache", c.kernel, limits::kWidth); }

void check_kind(const DenseMlp& m, Checker& check) {
  check.range("intermediate_size", m.intermediate_size, limits::kWidth);
}

void check_kind(const MoeMlp& m, Checker& check) {
  check.range("num_experts", m.experts, limits::kExperts);
  check.range("num_experts_per_tok", m.experts_per_token, limits::kExperts);
  check.range("moe_intermediate_size", m.intermediate_size, limits::kWidth);
  check.range("shared_expert_intermediate_size", m.shared_intermediate_size, kOptionalWidth);
  check.range("moe_latent_size", m.latent_size, kOptionalWidth);
  check.range("zero_expert_num", m.zero_experts, kOptionalExperts);
  check.agree(m.experts_per_token <= m.experts, "num_experts", "num_experts_per_tok");
}

void check_extras(const std::vector<ExtraTensor>& extras, Checker& check) {
  for (const ExtraTensor& extra : extras) {
    check.range("extras", extra.copies, limits::kWidth);
    check.agree(!extra.shape.empty(), "extras", "shape");
    for (const Dim size : extra.shape) check.range("extras", size, limits::kVocabulary);
  }
}

void check_layers(const ModelArchitecture& m, Checker& check) {
  check.range("num_hidden_layers", layers_of(m), limits::kLayers);
  const auto groups = static_cast<Dim>(m.groups.size());
  const bool known = std::all_of(m.order.begin(), m.order.end(), [&](Dim i) { return i >= 0 && i < groups; });
  check.agree(known, "order", "layers");
  if (known) {
    const std::vector<Dim> counts = first_layers(m, layers_of(m));
    for (std::size_t i = 0; i < m.groups.size(); ++i) check.agree(counts[i] == m.groups[i].count, "order", "layers");
  }
  for (const LayerGroup& group : m.groups) {
    check.range("num_hidden_layers", group.count, limits::kLayers);
    check.agree(!group.mixers.empty() || !group.mlps.empty(), "layer_types", "num_hidden_layers");
    check.range("norms", group.norms, {0, 64});
    for (const Mixer& mixer : group.mixers) std::visit([&](const auto& kind) { check_kind(kind, check); }, mixer);
    for (const Mlp& mlp : group.mlps) std::visit([&](const auto& kind) { check_kind(kind, check); }, mlp);
    check_extras(group.extras, check);
  }
}

}  // namespace

Problems check_architecture(const ModelArchitecture& m, const std::string& prefix) {
  Checker check(prefix);
  check.range("hidden_size", m.hidden_size, limits::kWidth);
  check.range("vocab_size", m.vocab_size, limits::kVocabulary);
  check.range("vocab_size", m.head_rows, kOptionalRows);
  check.range("embedding_size", m.embedding_size, kOptionalWidth);
  check.range("max_position_embeddings", m.max_position_embeddings, kOptionalTokens);
  check.range("max_position_embeddings", m.position_rows, kOptionalRows);
  check.agree(m.position != PositionType::learned || m.position_rows > 0, "max_position_embeddings", "position");
  check_layers(m, check);
  check_extras(m.extras, check);
  for (const Tower& tower : m.towers) check.range("towers", tower.parameters.value, {0, limits::kParameters.maximum});
  if (!check.problems().empty()) return check.problems();
  // Only now: the sizes are small enough to be multiplied.
  const Params total = total_parameters(parameter_groups(m));
  if (total.value > limits::kParameters.maximum) check.add({ProblemCode::too_large, prefix, {}});
  return check.problems();
}

}  // namespace vramplan
