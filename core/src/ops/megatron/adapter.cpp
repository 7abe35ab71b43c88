// Low-rank adapters as Megatron-Bridge 067f987 runs them (src/megatron/bridge/peft: lora_layers.py, LoRALinear;
// utils.py, ParallelLinearAdapter): two matrices of Megatron-Core's own beside a frozen one. Each keeps its input;
// their gradients go to the buffers of Megatron-Core (states/megatron.cpp).
#include "modules.hpp"
#include "vramplan/states.hpp"

namespace vramplan::ops::megatron {
namespace {

constexpr Component kAdapter = Component::activations_adapter;

// The outputs that a rank makes, where they are a part; all of them are gathered rank after rank, then joined token by
// token, and backward takes its part of their gradient (tensor_parallel/mappings.py, _gather_along_last_dim).
TensorId product(Graph& g, const BlockContext& c, TensorId x, const Linear& w, Width made) {
  const ElementType type = g.at(x).size.type;
  const Size whole = token_size(w.out, type, Symbol::one, w.tokens);
  Linear own = w;
  own.out = made;
  OpTraits traits{.flops = matrix_flops(g, own)};
  if (made.symbol != w.out.symbol && c.tensor_ranks > 1) {
    const Size part = token_size(made, type, Symbol::one, w.tokens);
    traits.forward = {Component::working_memory, {part, whole}};
    traits.backward = {Component::working_memory, {part}};
  }
  const TensorId out = g.tensor(whole, kAdapter, true);
  g.run({x}, {out}, traits);
  g.save(x);
  return out;
}

// The first matrix: cut along its outputs, or along its inputs, whose products are summed.
TensorId lowered(Graph& g, const BlockContext& c, TensorId x, const Linear& w, AdapterCut cut) {
  const bool along_inputs = cut == AdapterCut::row || cut == AdapterCut::expert;
  Linear down = w;
  down.out = {Symbol::r};
  return product(g, c, x, down, along_inputs ? down.out : Width{Symbol::rt});
}

// The second: cut along its outputs always, which are gathered where the base gives all of them.
TensorId raised(Graph& g, const BlockContext& c, TensorId x, const Linear& w, AdapterCut cut) {
  Linear up = w;
  up.in = {Symbol::r};
  return product(g, c, x, up, cut == AdapterCut::row ? Width{Symbol::ht} : up.out);
}

}  // namespace

bool is_adapted(const BlockContext& c, const Linear& w) { return c.adapter.on(joined(w.module)); }

TensorId adapter(Graph& g, const BlockContext& c, TensorId x, TensorId base, const Linear& w, AdapterCut cut) {
  const ElementType type = g.at(x).size.type;
  const TensorId dropped = c.adapter.dropout ? dropout(g, x, kAdapter) : x;
  const TensorId all =
      cut == AdapterCut::gathered_column ? g.apply({dropped}, token_size(w.in, type), kAdapter) : dropped;
  TensorId update = raised(g, c, lowered(g, c, all, w, cut), w, cut);
  if (cut == AdapterCut::row && c.sequence_parallel) update = g.apply({update}, shared_size(w.out, type), kAdapter);
  return g.apply({base, scale(g, update)}, g.at(base).size, w.component, {.passes_gradient = true});
}

}  // namespace vramplan::ops::megatron
