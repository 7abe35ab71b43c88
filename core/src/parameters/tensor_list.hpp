// Collects the tensors of one layer group, or of the model outside its layers. Private to src/parameters.
#pragma once

#include <vector>

#include "vramplan/model.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {

class TensorList {
 public:
  TensorList(std::vector<ParameterGroup>& groups, std::int32_t layer_group, Dim layers)
      : groups_(groups), layer_group_(layer_group), layers_(layers) {}

  // A torch.nn.Linear: a matrix, and with `bias` one value an output. A row cut keeps its bias whole: it is added after
  // the sum.
  void linear(Module module, Cut cut, Dim outputs, Dim inputs, bool bias = false) {
    ParameterGroup& weight = add(module, ParameterKind::linear, cut, outputs, inputs);
    weight.quantizable = true;
    if (bias) add(module, ParameterKind::bias, cut == Cut::row ? Cut::replicate : cut, outputs);
  }

  // A norm inside a mixer or an MLP: weight only.
  void inner_norm(Dim width, Cut cut = Cut::replicate) { add(Module::norm, ParameterKind::norm, cut, width); }

  // `count` norms on the residual stream, as the model says: with weight, with bias, or with nothing to learn.
  void norms(const Norm& norm, Dim width, Dim count) {
    for (const bool learned : {norm.weight, norm.bias}) {
      if (!learned || count == 0) continue;
      ParameterGroup& group = add(Module::norm, ParameterKind::norm, Cut::replicate, width);
      group.copies = group.active_copies = count;
    }
  }

  // Any other tensor. The reference is good until the next one is added.
  ParameterGroup& add(Module module, ParameterKind kind, Cut cut, Dim rows, Dim columns = 1) {
    ParameterGroup group;
    group.module = module;
    group.kind = kind;
    group.cut = cut;
    group.layer_group = layer_group_;
    group.rows = rows;
    group.columns = columns;
    group.layers = layers_;
    return groups_.emplace_back(group);
  }

 private:
  std::vector<ParameterGroup>& groups_;
  std::int32_t layer_group_;
  Dim layers_;
};

// Projections, biases, inner norms and indexers of attention in all its kinds. `hidden` is the model's width.
void attention_parameters(const Attention& attention, Dim hidden, TensorList& out);
void attention_parameters(const LatentAttention& attention, Dim hidden, TensorList& out);
void attention_parameters(const CompressedAttention& attention, Dim hidden, TensorList& out);

// State space, linear attention and convolution.
void state_space_parameters(const Mamba1& mamba, Dim hidden, TensorList& out);
void state_space_parameters(const Mamba2& mamba, Dim hidden, TensorList& out);
void state_space_parameters(const GatedDeltaNet& net, Dim hidden, TensorList& out);
void state_space_parameters(const KimiDeltaAttention& attention, Dim hidden, TensorList& out);
void state_space_parameters(const LightningAttention& attention, Dim hidden, TensorList& out);
void state_space_parameters(const ShortConvolution& convolution, Dim hidden, TensorList& out);

void mlp_parameters(const DenseMlp& mlp, Dim hidden, TensorList& out);
void mlp_parameters(const MoeMlp& mlp, Dim hidden, TensorList& out);

void extra_parameters(const std::vector<ExtraTensor>& extras, TensorList& out);

}  // namespace vramplan
