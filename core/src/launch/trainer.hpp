// What the trainers built on Transformers' Trainer and PEFT have in common: names of types, kernels, optimizers and
// modules (transformers/training_args.py 5.24, peft 0.21).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "run.hpp"

namespace vramplan::launch {

[[nodiscard]] bool runs_on_trainer(FrameworkId framework);

// What no such trainer can be told.
void need_trainer(const Run& run, Needs& needs);

[[nodiscard]] std::string attention_name(AttentionKernel kernel);

// torch's name of the type in which weights are loaded; for quantized ones, of the type in which they compute.
[[nodiscard]] std::string dtype_name(const Run& run);

// `optim` of TrainingArguments; nothing when it has none with these states.
[[nodiscard]] std::optional<std::string> optimizer_name(const Run& run);

// Names of the modules that take adapters, as PEFT wants them; nothing where a module of another family has a name
// that is not known here. Empty: all linear layers.
[[nodiscard]] std::optional<Words> target_modules(const Run& run);
[[nodiscard]] std::optional<Words> saved_modules(const Run& run);

// Trainer arguments that are called the same everywhere: sizes, precision, optimizer, steps.
void add_trainer_arguments(const Run& run, Settings& out);

[[nodiscard]] Settings deepspeed_config(const Run& run);

// accelerate's configuration (accelerate/commands/config/config_args.py, ClusterConfig); one process without DeepSpeed
// needs none.
[[nodiscard]] bool needs_accelerate(const Run& run);
[[nodiscard]] Settings accelerate_config(const Run& run);

// `accelerate launch`, with what tells the nodes apart.
[[nodiscard]] Words accelerate_launch(const Run& run);

// The configuration files that accelerate reads.
void add_accelerate_files(const Run& run, LaunchId id, std::vector<LaunchText>& out);

// Installed beside a trainer: what its run needs of the request's own choices.
[[nodiscard]] std::string requirements(const Run& run, std::string trainer);

}  // namespace vramplan::launch
