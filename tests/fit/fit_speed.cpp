// Fits the shares of calibration.hpp on the published runs, by coordinate descent from the values that it holds, and
// prints the table to put there. A run counts less the more its source has of its kind, so that no sweep decides for
// all. Build and run: cmake --build build/dev --target fit_speed && build/dev/tests/fit_speed
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "support/layout_rows.hpp"
#include "vramplan/enum_names.hpp"

using namespace vramplan;
using support::LayoutRow;

namespace {

struct Parameter {
  double* value = nullptr;
  double low = 0, high = 1;
};

// What the tests of single kernels and links leave open: no product beyond the best that anybody measured (stas00's
// MAMF: 87 % of an A100's peak, 80 % of an H100's, 78 % of a B200's; in 8 bits 76 %), no network beyond its line.
constexpr double kBestMatmul[] = {0.87, 0.80, 0.78, 0.78};
constexpr double kBestMatmul8 = 0.76;

void add_family(Calibration& c, std::size_t index, std::vector<Parameter>& out) {
  FamilyRates& family = c.family[index];
  const bool blackwell = index >= static_cast<std::size_t>(GpuFamily::blackwell);
  for (std::size_t stack = blackwell ? 2 : 0; stack < kSpeedStacks; ++stack) {
    if (index < static_cast<std::size_t>(GpuFamily::blackwell_ultra)) {  // no runs in 16 bits there
      out.push_back({&family.matmul[stack], 0.3, kBestMatmul[index]});
      out.push_back({&family.attention[stack], 0.15, 0.65});
    }
    if (index > 0) out.push_back({&family.matmul8[stack], 0.3, kBestMatmul8});
  }
  out.push_back({&family.tensor_exposed, 0.2, 1});
  if (index > 0) out.push_back({&family.routing_seconds, 0.0002, 0.01});
}

std::vector<Parameter> parameters(Calibration& c) {
  std::vector<Parameter> out;
  for (std::size_t family = 0; family < 4; ++family) add_family(c, family, out);
  const std::vector<Parameter> common = {
      {&c.tile, 50, 400},       {&c.network, 0.6, 0.92},        {&c.expert_exposed, 0.3, 1},
      {&c.data_hidden, 0.3, 1}, {&c.step_seconds, 0.001, 0.03}, {&c.launch_seconds, 4e-6, 12e-6},
      {&c.hop_out, 2e-6, 25e-6}};
  out.insert(out.end(), common.begin(), common.end());
  return out;
}

std::string kind_of(const LayoutRow& row) {
  return row.source + row.gpu.id + std::string(name_of(row.request.training.precision));
}

class Fit {
 public:
  explicit Fit(const std::vector<LayoutRow>& rows) : rows_(rows) {
    std::map<std::string, double> kinds;
    for (const LayoutRow& row : rows) ++kinds[kind_of(row)];
    for (const LayoutRow& row : rows) weights_.push_back(1 / std::sqrt(kinds[kind_of(row)]));
  }
  // Mean of |log(estimated / measured)|; what is far off counts no more than a factor of two.
  [[nodiscard]] double loss(const Calibration& c) const {
    double sum = 0, weight = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      sum += weights_[i] * std::min(std::abs(error(rows_[i], c)), std::log(2.0));
      weight += weights_[i];
    }
    return sum / weight;
  }
  [[nodiscard]] static double error(const LayoutRow& row, const Calibration& c) {
    return std::log(row.speed(c).step_seconds.expected / row.seconds);
  }

 private:
  const std::vector<LayoutRow>& rows_;
  std::vector<double> weights_;
};

bool improve(const Fit& fit, Calibration& c, Parameter& p, double factor, double& best) {
  const double old = *p.value;
  *p.value = std::clamp(old * factor, p.low, p.high);
  const double loss = fit.loss(c);
  if (loss < best - 1e-6) {
    best = loss;
    return true;
  }
  *p.value = old;
  return false;
}

void descend(const Fit& fit, Calibration& c) {
  std::vector<Parameter> all = parameters(c);
  double best = fit.loss(c);
  std::printf("// mean error %.4f before", best);
  for (double step = 0.2; step > 0.005; step *= 0.7) {
    for (int round = 0; round < 2; ++round) {
      for (Parameter& p : all) {
        if (!improve(fit, c, p, 1 + step, best)) improve(fit, c, p, 1 / (1 + step), best);
      }
    }
  }
  std::printf(", %.4f after\n", best);
}

// Measured over estimated: nine rows in ten between the two.
void print_band(const char* name, const std::vector<LayoutRow>& rows, const Calibration& c, bool experts, int stack) {
  std::vector<double> ratios;
  for (const LayoutRow& row : rows) {
    const TrainingChoice& t = row.request.training;
    const int of = t.framework == FrameworkId::megatron ? 2 : t.compile || t.kernels == Kernels::fused ? 1 : 0;
    if (row.experts == experts && (experts || of == stack)) ratios.push_back(1 / std::exp(Fit::error(row, c)));
  }
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double share) {
    return ratios[static_cast<std::size_t>(share * static_cast<double>(ratios.size()))];
  };
  std::printf("// %s: %zu rows, {%.2f, %.2f}\n", name, ratios.size(), at(0.05), at(0.95));
}

void print(const Calibration& c) {
  for (const FamilyRates& f : c.family) {
    std::printf("        {{%.2f, %.2f, %.2f}, {%.2f, %.2f, %.2f}, {%.2f, %.2f, %.2f}, %.2f, %.2f, %.2f, %.4f},\n",
                f.matmul[0], f.matmul[1], f.matmul[2], f.matmul8[0], f.matmul8[1], f.matmul8[2], f.attention[0],
                f.attention[1], f.attention[2], f.memory, f.link, f.tensor_exposed, f.routing_seconds);
  }
  std::printf(".tile = %.0f .network = %.2f .expert_exposed = %.2f .data_hidden = %.2f\n", c.tile, c.network,
              c.expert_exposed, c.data_hidden);
  std::printf(".step_seconds = %.3f .launch_seconds = %.1e .hop_out = %.1e\n", c.step_seconds, c.launch_seconds,
              c.hop_out);
}

}  // namespace

int main() {
  const std::vector<LayoutRow> rows = support::layout_rows();
  const Fit fit(rows);
  Calibration c = kCalibration;
  descend(fit, c);
  print(c);
  print_band("eager", rows, c, false, 0);
  print_band("compiled", rows, c, false, 1);
  print_band("megatron", rows, c, false, 2);
  print_band("experts", rows, c, true, 0);
}
