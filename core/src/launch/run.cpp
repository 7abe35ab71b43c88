#include "run.hpp"

namespace vramplan::launch {
namespace {

constexpr std::string_view kRendezvousPort = "29500";  // torch.distributed's own default

std::string number(std::int64_t n) { return std::to_string(n); }

std::string slurm_head(const Run& run) {
  return "#!/bin/bash\n#SBATCH --nodes=" + number(run.nodes) +
         "\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=" + number(run.per_node) + "\n\n";
}

}  // namespace

std::optional<std::int64_t> steps_of(const Run& run) {
  if (!run.training().tokens) return std::nullopt;
  const TrainingChoice& t = run.training();
  const std::int64_t sequences =
      saturating_multiply(saturating_multiply(t.micro_batch, run.layout.dp), run.accumulation);
  return divide_up(static_cast<std::int64_t>(*t.tokens), saturating_multiply(sequences, t.sequence_length));
}

bool has_natural_states(const Run& run) {
  PlanRequest plain = *run.request;
  plain.training.optimizer.states.reset();
  return resolve_defaults(std::move(plain)).training.optimizer.states == run.training().optimizer.states;
}

Words torchrun(const Run& run) {
  Words out = {"torchrun", "--nnodes " + number(run.nodes), "--nproc-per-node " + number(run.per_node)};
  if (run.nodes == 1) return out;
  out.insert(out.end(), {"--rdzv-id \"$SLURM_JOB_ID\"", "--rdzv-backend c10d",
                         "--rdzv-endpoint \"$MAIN_NODE:" + std::string(kRendezvousPort) + "\""});
  return out;
}

LaunchText start(const Run& run, LaunchId id, const std::string& requirements, const Words& words) {
  const std::string install = "pip install " + requirements + "\n\n";
  const std::string name(name_of(id));
  if (run.nodes == 1) return text(id, name + ".sh", LaunchFormat::shell, install + command(words));
  const std::string main_node =
      "export MAIN_NODE=$(scontrol"
      " show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n";
  // Variables of a node have their values there, not in the batch script.
  std::string script = slurm_head(run) + install + main_node + "srun bash -c '" + command(words);
  script.back() = '\'';
  return text(id, name + ".sbatch", LaunchFormat::shell, script + "\n");
}

}  // namespace vramplan::launch
