// How to start the run that was planned: configuration files and commands of the frameworks that can express it.
//
// Every value comes from the resolved request; what a framework must be told and the request does not say is a
// placeholder in capitals. A framework that cannot express the run, or whose code is not the one that was planned, is
// left out with the reason. tests/oracle/launch.py feeds each text to the framework's own parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vramplan/architecture.hpp"
#include "vramplan/enum_names.hpp"
#include "vramplan/request.hpp"

namespace vramplan {

enum class LaunchId : std::uint8_t { trl, axolotl, llamafactory, torchtune, torchtitan, megatron };
enum class LaunchFormat : std::uint8_t { yaml, json, shell };
enum class LaunchReason : std::uint8_t {
  other_framework,  // it runs other code than the framework that was planned, in other memory
  not_published,    // the model has no name that a framework can load, or its shape was changed
  unknown_model,    // the framework has no recipe for this model
  not_expressible,  // it has no setting for the field at `pointer`
};
template <>
struct EnumNames<LaunchId> {
  static constexpr Names<6> values = {"trl", "axolotl", "llamafactory", "torchtune", "torchtitan", "megatron"};
};
template <>
struct EnumNames<LaunchFormat> {
  static constexpr Names<3> values = {"yaml", "json", "shell"};
};
template <>
struct EnumNames<LaunchReason> {
  static constexpr Names<4> values = {"other_framework", "not_published", "unknown_model", "not_expressible"};
};

// One file. Those of one id belong together; the last of them is the command.
struct LaunchText {
  LaunchId id = LaunchId::trl;
  std::string filename;
  LaunchFormat format = LaunchFormat::yaml;
  std::string text;
};

struct LaunchOmission {
  LaunchId id = LaunchId::trl;
  LaunchReason reason = LaunchReason::other_framework;
  std::string_view pointer;  // of the field that stands in the way
};

struct Launch {
  std::vector<LaunchText> texts;
  std::vector<LaunchOmission> left_out;
};

// `request`: with its defaults filled in (resolve_defaults) and a layout.
[[nodiscard]] Launch launch_configuration(const PlanRequest& request, const ResolvedModel& model);

}  // namespace vramplan
