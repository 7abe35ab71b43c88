#include "vramplan/parameters.hpp"

#include "parameters/tensor_list.hpp"

namespace vramplan {
namespace {

void mixer_parameters(const Attention& mixer, Dim hidden, TensorList& out) { attention_parameters(mixer, hidden, out); }
void mixer_parameters(const LatentAttention& mixer, Dim hidden, TensorList& out) {
  attention_parameters(mixer, hidden, out);
}
void mixer_parameters(const CompressedAttention& mixer, Dim hidden, TensorList& out) {
  attention_parameters(mixer, hidden, out);
}
template <class StateSpace>
void mixer_parameters(const StateSpace& mixer, Dim hidden, TensorList& out) {
  state_space_parameters(mixer, hidden, out);
}

void embedding_parameters(const ModelArchitecture& m, TensorList& out) {
  const Dim width = m.embedding_size > 0 ? m.embedding_size : m.hidden_size;
  out.add(Module::embedding, ParameterKind::embedding, Cut::vocabulary, m.vocab_size, width);
  if (m.position_rows > 0) {
    out.add(Module::position_embedding, ParameterKind::embedding, Cut::replicate, m.position_rows, m.hidden_size);
  }
  if (m.embedding_size > 0) out.linear(Module::other, Cut::replicate, m.hidden_size, m.embedding_size);
  if (m.embedding_norm) out.norms(m.norm, m.hidden_size, 1);
}

void layer_parameters(const ModelArchitecture& m, const LayerGroup& layer, TensorList& out) {
  out.norms(m.norm, m.hidden_size, layer.norms);
  for (const Mixer& mixer : layer.mixers) {
    std::visit([&](const auto& kind) { mixer_parameters(kind, m.hidden_size, out); }, mixer);
  }
  for (const Mlp& mlp : layer.mlps) {
    std::visit([&](const auto& kind) { mlp_parameters(kind, m.hidden_size, out); }, mlp);
  }
  extra_parameters(layer.extras, out);
}

void head_parameters(const ModelArchitecture& m, TensorList& out) {
  if (m.final_norm) out.norms(m.norm, m.hidden_size, 1);
  if (m.embedding_size > 0) out.linear(Module::other, Cut::replicate, m.embedding_size, m.hidden_size);
  const Dim width = m.embedding_size > 0 ? m.embedding_size : m.hidden_size;
  if (!m.tie_word_embeddings) out.add(Module::head, ParameterKind::head, Cut::vocabulary, head_rows_of(m), width);
  if (m.lm_head_bias) out.add(Module::head, ParameterKind::bias, Cut::vocabulary, head_rows_of(m));
}

}  // namespace

void extra_parameters(const std::vector<ExtraTensor>& extras, TensorList& out) {
  for (const ExtraTensor& extra : extras) {
    if (extra.shape.empty()) continue;
    // A matrix reads its last dimension; a table has a row a token, its first.
    Dim rows = extra.shape.front();
    Dim columns = 1;
    for (std::size_t i = 1; i < extra.shape.size(); ++i) {
      Dim& side = extra.linear && i + 1 < extra.shape.size() ? rows : columns;
      side = saturating_multiply(side, extra.shape[i]);
    }
    const ParameterKind kind = extra.embedding ? ParameterKind::embedding
                               : extra.linear  ? ParameterKind::linear
                                               : ParameterKind::scalar;
    const Cut cut = extra.embedding ? Cut::vocabulary : Cut::replicate;
    ParameterGroup& group = out.add(Module::other, kind, cut, rows, columns);
    group.copies = group.active_copies = extra.copies;
    group.quantizable = extra.linear;
  }
}

std::vector<ParameterGroup> parameter_groups(const ModelArchitecture& model) {
  std::vector<ParameterGroup> groups;
  TensorList outside(groups, kOutsideLayers, 1);
  if (model.holds_embedding) embedding_parameters(model, outside);
  for (std::size_t i = 0; i < model.groups.size(); ++i) {
    TensorList inside(groups, static_cast<std::int32_t>(i), model.groups[i].count);
    layer_parameters(model, model.groups[i], inside);
  }
  if (model.holds_head) head_parameters(model, outside);
  extra_parameters(model.extras, outside);
  for (const Tower& tower : model.towers) {
    outside.add(Module::tower, ParameterKind::tower, Cut::replicate, tower.parameters.value);
  }
  return groups;
}

// A projection of stream and embedding, joined, three norms (of the embedding, of the stream, behind the layer), and a
// layer like the last one. Embedding and head are those of the model; where another stage has the embedding, a copy of
// its own, which a tied head is already (megatron/core/models/common/language_module/language_module.py).
void add_prediction_parameters(const ModelArchitecture& m, Dim modules, const WholeModel& whole,
                               std::vector<ParameterGroup>& groups) {
  constexpr Dim kNorms = 3;
  TensorList once(groups, kOutsideLayers, 1);
  if (!m.holds_embedding && !whole.tied) {
    once.add(Module::embedding, ParameterKind::embedding, Cut::vocabulary, m.vocab_size, m.hidden_size);
  }
  TensorList each(groups, kOutsideLayers, modules);
  each.norms(m.norm, m.hidden_size, kNorms);
  each.linear(Module::other, Cut::column, divide_up(m.hidden_size, whole.tensor_ranks), 2 * m.hidden_size);
  layer_parameters(m, m.groups.back(), each);
}

Params total_parameters(const std::vector<ParameterGroup>& groups) {
  Params total;
  for (const ParameterGroup& group : groups) total += parameters_of(group);
  return total;
}

Params active_parameters(const std::vector<ParameterGroup>& groups) {
  Params total;
  for (const ParameterGroup& group : groups) total += active_parameters_of(group);
  return total;
}

}  // namespace vramplan
