// From a request to a run: the part of the model on a rank, its sharding, and the micro-batches of a step.
#include "step/run.hpp"

#include <algorithm>

namespace vramplan {
namespace {

// Micro-batches that a pipeline makes of the batch of a rank.
std::int64_t pieces_of(const TrainingChoice& t, const FrameworkSwitches& framework, const LayoutChoice& layout,
                       BatchSize batch) {
  return framework.pipeline_cuts_batch && layout.pp > 1 && !t.global_batch ? batch.micro_batch : 1;
}

std::int64_t accumulation_steps(const TrainingChoice& t, const FrameworkSwitches& framework, const LayoutChoice& layout,
                                BatchSize batch) {
  if (!t.global_batch) {
    // A pipeline of which nobody says how often it is fed is full.
    const std::int64_t full = layout.pp > 1 ? layout.pp * (layout.vpp > 1 ? 2 : 1) : 1;
    const std::int64_t fed = framework.pipeline_cuts_batch ? pieces_of(t, framework, layout, batch) : full;
    return std::max(framework.sequences_per_device / batch.micro_batch, fed);
  }
  const std::int64_t per_pass = saturating_multiply(batch.micro_batch, layout.dp);
  return std::max<std::int64_t>(*t.global_batch / per_pass, 1);
}

}  // namespace

void set_size(Run& run, const LayoutChoice& layout, BatchSize batch) {
  run.layout = layout;
  run.sharding = sharding_of(run.training, layout);
  run.accumulation_steps = accumulation_steps(run.training, run.framework, layout, batch);
  run.training.micro_batch = batch.micro_batch / pieces_of(run.training, run.framework, layout, batch);
  run.training.sequence_length = batch.sequence_length;
  if (layout.pp > 1) run.stage = stage_of(*run.whole, layout, run.accumulation_steps, run.stage.index);
}

Form form_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
             BatchSize batch, std::int64_t stage) {
  const Sharding sharding = sharding_of(training, layout);
  const FrameworkSwitches framework = switches_for(training, sharding);
  const bool accumulates = accumulation_steps(training, framework, layout, batch) > 1;
  Form form{sharding.engine, sharding.gathers, drops_gradients(sharding, accumulates),
            uses_up_gradients(training, sharding)};
  form.tp = layout.tp, form.pp = layout.pp, form.vpp = layout.vpp, form.cp = layout.cp;
  form.ep = layout.ep, form.etp = expert_tensor_ranks(layout), form.sp = layout.sp, form.stage = stage;
  form.cp_exchange = layout.cp_exchange;
  form.loss_parallel = layout.loss_parallel;
  form.first_stage_layers = layout.first_stage_layers, form.last_stage_layers = layout.last_stage_layers;
  form.joins_sequences = joins_sequences(framework, batch.micro_batch);
  form.filled_windows = filled_windows(model, batch.sequence_length);
  return form;
}

Run prepare(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
            Bytes cublas_workspace, std::int64_t stage) {
  Run run;
  run.whole = run.model = &model;
  run.training = training;
  run.framework = switches_for(training, sharding_of(training, layout));
  run.stage = stage_of(model, layout, 1, stage);
  if (cuts_model(layout) || run.framework.vocabulary_multiple > 1) {
    run.part =
        std::make_shared<const ModelArchitecture>(part_of(model, layout, run.stage, run.framework.vocabulary_multiple));
    run.model = run.part.get();
  }
  set_size(run, layout, {training.micro_batch, training.sequence_length});
  run.types = state_types(training, run.framework);
  const std::vector<ParameterGroup> groups = groups_for(*run.model, training, {layout.tp, model.tie_word_embeddings});
  run.inventory = take_inventory(*run.model, training, groups, {layout.tp, expert_tensor_ranks(layout)});
  if (run.framework.trains_whole_units)
    run.inventory.with_gradients = run.inventory.total - run.inventory.outside_layers;
  run.adapter_targets = adapter_targets(training, groups);
  run.cublas_workspace = cublas_workspace;
  return run;
}

}  // namespace vramplan
