// Which layers are trained, checkpointed and reached by gradients: those that are alike make a stack.
#include "step/stacks.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "step/contexts.hpp"
#include "step/run.hpp"

namespace vramplan {
namespace {

// BAdam's layer, of which the lowest is planned: everything above it has gradients of activations.
bool trains_one_layer(const Run& run) { return run.training.optimizer.name == OptimizerName::badam; }

bool asks_reference(const TrainingChoice& t) {
  return t.reference == Reference::model || t.reference == Reference::adapters_off;
}

Dim walked_layers(const Stage& stage) { return std::accumulate(stage.walked.begin(), stage.walked.end(), Dim{0}); }

// The first layer through which gradients flow: below the lowest that is trained, or that carries adapters, autograd
// stops.
Dim first_trained_layer(const Run& run, Dim layers) {
  if (run.training.method == Method::freeze)
    return std::max<Dim>(layers - run.training.trainable_layers.value_or(0), 0);
  if (trains_one_layer(run)) return first_of(*run.model, largest_group(run.inventory));
  if (!has_adapters(run) || !holds_all(run)) return 0;
  Dim first = layers;
  for (std::size_t i = 0; i < run.model->groups.size(); ++i) {
    if ((run.inventory.adapted_groups >> i & 1U) != 0) first = std::min(first, first_of(*run.model, i));
  }
  return first;
}

// Makes the stacks of a stage. Layers below the first that is trained run without gradients. Nothing below that one
// needs a gradient either, unless a checkpoint asks for one at its input (enable_input_require_grads), the embedding is
// trained, or another stage hands it over: it is a stack of its own.
class Stacks {
 public:
  Stacks(const Run& run, GraphSet& graphs) : run_(run), graphs_(graphs) {
    const Dim layers = walked_layers(run.stage);
    const bool from_below = trains_outside(run.training, Module::embedding) || (checkpointed() && has_adapters(run));
    const bool handed_over = !run.stage.first || run.layout.vpp > 1;
    const Dim first = from_below ? 0 : first_trained_layer(run, layers);
    const std::vector<Dim> frozen = first_walked(first);
    const std::vector<Dim> edge = first_walked(from_below || handed_over ? first : std::min(first + 1, layers));
    const std::size_t groups = frozen.size();
    for (std::size_t i = 0; i < groups; ++i) push(i, frozen[i], Place::frozen);
    for (std::size_t i = 0; i < groups; ++i) push(i, edge[i] - frozen[i], Place::edge);
    for (std::size_t i = 0; i < groups; ++i) push(i, run.stage.walked[i] - edge[i], Place::above);
  }
  [[nodiscard]] std::vector<LayerStack> take() {
    std::vector<bool> met(run_.stage.walked.size());
    for (auto stack = stacks_.rbegin(); stack != stacks_.rend(); ++stack) {
      stack->last_of_group = !met[stack->group];
      met[stack->group] = true;
    }
    return std::move(stacks_);
  }

 private:
  enum class Place : std::uint8_t { frozen, edge, above };

  [[nodiscard]] bool checkpointed() const { return checkpoints_blocks(run_); }
  [[nodiscard]] std::vector<Dim> first_walked(Dim layers) const {
    return first_layers(run_.stage.walked, holds_all(run_) ? run_.model->order : std::vector<Dim>{}, layers);
  }
  void push(std::size_t group, Dim count, Place place) {
    // Where others wait beside those that are walked, the group has a stack even when none is walked.
    const bool piped = run_.layout.pp > 1 && run_.stage.held[group] > 0;
    if (count == 0 && !(piped && place == Place::above)) return;
    const bool trained = place != Place::frozen;
    BlockContext context = context_of(run_, trained);
    context.gradient_enters = place == Place::above;
    if (trains_one_layer(run_) && place == Place::edge) context.trains_base = context.trains_norms = true;
    context.caches = caches_products(run_) && trained;
    const bool checkpoints = checkpointed() && trained;
    stacks_.push_back({.first = next_,
                       .count = count,
                       .group = group,
                       .trained = trained,
                       .checkpointed = checkpoints,
                       .block = WalkedGraph(graphs_.block(context, group, checkpoints, block_policy(run_))),
                       .parameters = run_.inventory.layers[group]});
    next_ += count;
  }

  const Run& run_;
  GraphSet& graphs_;
  Dim next_ = 0;
  std::vector<LayerStack> stacks_;
};

}  // namespace

std::vector<LayerStack> stacks_of(const Run& run, GraphSet& graphs) { return Stacks(run, graphs).take(); }

std::vector<WalkedGraph> reference_of(const Run& run, GraphSet& set) {
  std::vector<WalkedGraph> graphs;
  if (!asks_reference(run.training)) return graphs;
  const BlockContext context = reference_context(run);
  for (std::size_t i = 0; i < run.model->groups.size(); ++i) graphs.emplace_back(set.block(context, i, false, {}));
  graphs.emplace_back(set.head(context, {}));
  return graphs;
}

}  // namespace vramplan
