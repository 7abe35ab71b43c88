#include "lora_targets.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "vramplan/enum_names.hpp"

namespace vramplan {
namespace {

constexpr std::string_view kAllLinear = "all-linear";

struct Alias {
  std::string_view name;
  std::array<std::string_view, 4> modules;  // unused places are empty
};

// PEFT matches by the end of a module's name, so a name that one model uses twice stands for both of its modules.
// A model that lacks one of them simply has no adapter there.
constexpr Alias kAliases[] = {
    {"mlp", {"gate", "up", "down", "gate_up"}},
    // attention
    {"q_proj", {"q"}},
    {"k_proj", {"k"}},
    {"v_proj", {"v"}},
    {"o_proj", {"o"}},
    {"wq", {"q"}},
    {"wk", {"k"}},
    {"wv", {"v"}},
    {"wo", {"o"}},
    {"query", {"q"}},
    {"key", {"k"}},
    {"value", {"v"}},
    {"proj", {"o"}},
    {"dense", {"o"}},
    {"out_proj", {"o", "out_proj"}},
    {"self_attn.out_proj", {"o"}},
    {"attn.out_proj", {"o"}},
    {"attn.c_proj", {"o"}},
    {"qkv_proj", {"qkv"}},
    {"query_key_value", {"qkv"}},
    {"c_attn", {"qkv"}},
    {"Wqkv", {"qkv"}},
    {"wqkv", {"qkv"}},
    {"W_pack", {"qkv"}},
    {"q_a_proj", {"q_a"}},
    {"q_b_proj", {"q_b"}},
    {"kv_a_proj_with_mqa", {"kv_a"}},
    {"kv_b_proj", {"kv_b"}},
    // MLP
    {"gate_proj", {"gate"}},
    {"up_proj", {"up"}},
    {"down_proj", {"down"}},
    {"gate_up_proj", {"gate_up"}},
    {"w1", {"gate"}},
    {"w3", {"up"}},
    {"w2", {"down"}},
    {"fc1", {"up"}},
    {"fc2", {"down"}},
    {"fc_in", {"up"}},
    {"fc_out", {"down"}},
    {"c_fc", {"up"}},
    {"c_proj", {"o", "down"}},
    {"mlp.c_proj", {"down"}},
    {"dense_h_to_4h", {"up"}},
    {"dense_4h_to_h", {"down"}},
    // Megatron-Core
    {"linear_qkv", {"q", "k", "v", "qkv"}},
    {"linear_proj", {"o"}},
    {"linear_q_proj", {"q"}},
    {"linear_q_down_proj", {"q_a"}},
    {"linear_q_up_proj", {"q_b"}},
    {"linear_kv_down_proj", {"kv_a"}},
    {"linear_kv_up_proj", {"kv_b"}},
    {"linear_fc1", {"gate", "up", "gate_up"}},
    {"linear_fc2", {"down"}},
    // around the layers
    {"lm_head", {"head"}},
    {"embed_out", {"head"}},
    {"embed_tokens", {"embedding"}},
    {"embed_in", {"embedding"}},
    {"word_embeddings", {"embedding"}},
    {"wte", {"embedding"}},
};

// An adapter needs a weight matrix.
bool takes_adapter(Module module) {
  constexpr std::array without = {Module::position_embedding, Module::norm, Module::conv, Module::other, Module::tower};
  return std::find(without.begin(), without.end(), module) == without.end();
}

std::vector<std::string> exact_match(std::string_view name) {
  if (name == kAllLinear) return {std::string(name)};
  const auto* alias =
      std::find_if(std::begin(kAliases), std::end(kAliases), [&](const Alias& a) { return a.name == name; });
  if (alias != std::end(kAliases)) {
    std::vector<std::string> modules(alias->modules.begin(), alias->modules.end());
    std::erase(modules, "");
    return modules;
  }
  const std::optional<Module> module = parse_enum<Module>(name);
  if (module && takes_adapter(*module)) return {std::string(name)};
  return {};
}

}  // namespace

std::vector<std::string> lora_target_modules(std::string_view name) {
  // The longest end of a path that means something: "h.0.attn.c_proj" is attn.c_proj, not c_proj.
  while (true) {
    std::vector<std::string> modules = exact_match(name);
    const std::size_t dot = name.find('.');
    if (!modules.empty() || dot == std::string_view::npos) return modules;
    name.remove_prefix(dot + 1);
  }
}

std::vector<std::string_view> lora_target_names() {
  std::vector<std::string_view> names = {kAllLinear, "mlp"};
  for (std::size_t i = 0; i < EnumNames<Module>::values.size(); ++i) {
    if (takes_adapter(static_cast<Module>(i))) names.push_back(EnumNames<Module>::values[i]);
  }
  return names;
}

}  // namespace vramplan
