#include "vramplan/launch.hpp"

#include <algorithm>
#include <array>

#include "run.hpp"

namespace vramplan {
namespace {

using launch::Generator;
using launch::Run;

// A node of the systems that most runs are made on; only where the request names no number of its own.
constexpr std::int64_t kGpusPerNode = 8;

bool keeps_shape(const ModelById& model) {
  const ModelOverrides& o = model.overrides;
  return !o.num_hidden_layers && !o.hidden_size && !o.intermediate_size && !o.num_attention_heads &&
         !o.num_key_value_heads && !o.head_dim && !o.vocab_size && !o.num_experts && !o.moe_intermediate_size &&
         !o.tie_word_embeddings && !o.text_only;
}

bool is_published(const PlanRequest& request, const ResolvedModel& model) {
  const auto* named = std::get_if<ModelById>(&request.model);
  return named != nullptr && !model.id.empty() && keeps_shape(*named);
}

Run run_of(const PlanRequest& request, const ResolvedModel& model) {
  Run run;
  run.request = &request;
  run.model = model.id;
  run.model_type = model.model_type;
  run.architecture = &model.architecture;
  run.layout = request.layout.value_or(LayoutChoice{});
  run.gpus = ranks_of(run.layout);
  const bool given = request.hardware && request.hardware->per_node;
  run.per_node = std::min(run.gpus, given ? *request.hardware->per_node : kGpusPerNode);
  run.nodes = divide_up(run.gpus, run.per_node);
  const TrainingChoice& t = request.training;
  const std::int64_t pass = saturating_multiply(t.micro_batch, run.layout.dp);
  if (t.global_batch) run.accumulation = std::max<std::int64_t>(*t.global_batch / pass, 1);
  return run;
}

// The request's own framework is the first whose generator runs it: the others that share its code follow.
constexpr std::array kGenerators = {launch::trl,       launch::axolotl,    launch::llamafactory,
                                    launch::torchtune, launch::torchtitan, launch::megatron};

LaunchOmission obstacle(const Generator& generator, const Run& run, bool published) {
  if (!generator.runs(run.training().framework)) {
    return {generator.id, LaunchReason::other_framework, "/training/framework"};
  }
  if (!published) return {generator.id, LaunchReason::not_published, "/model"};
  if (run.gpus % run.per_node != 0) return {generator.id, LaunchReason::not_expressible, "/hardware/per_node"};
  return generator.lacks(run);
}

}  // namespace

Launch launch_configuration(const PlanRequest& request, const ResolvedModel& model) {
  const Run run = run_of(request, model);
  const bool published = is_published(request, model);
  Launch out;
  for (const auto& make : kGenerators) {
    const Generator generator = make();
    const LaunchOmission left_out = obstacle(generator, run, published);
    if (!left_out.pointer.empty()) {
      out.left_out.push_back(left_out);
      continue;
    }
    for (LaunchText& text : generator.write(run)) out.texts.push_back(std::move(text));
  }
  return out;
}

}  // namespace vramplan
