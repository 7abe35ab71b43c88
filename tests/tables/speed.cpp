// Step times against published runs (layouts.jsonl), by slice, and the order of layouts that were measured side by
// side. The yardstick is constant utilisation: the median share of the card's peak in other sources of the same GPU,
// precision and kind of model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "support/layout_rows.hpp"
#include "vramplan/enum_names.hpp"
#include "vramplan/parameters.hpp"

using namespace vramplan;
using support::LayoutRow;

namespace {

struct Judged {
  const LayoutRow* row = nullptr;
  Speed speed;
  [[nodiscard]] double error() const { return std::abs(speed.step_seconds.expected / row->seconds - 1); }
  [[nodiscard]] bool inside() const {
    return speed.step_seconds.low <= row->seconds && row->seconds <= speed.step_seconds.high;
  }
};

const std::vector<Judged>& judged() {
  static const std::vector<LayoutRow> rows = support::layout_rows();
  static const std::vector<Judged> all = [] {
    std::vector<Judged> out;
    for (const LayoutRow& row : rows) out.push_back({&row, row.speed()});
    return out;
  }();
  return all;
}

double quantile(std::vector<double> values, double share) {
  REQUIRE_FALSE(values.empty());
  std::sort(values.begin(), values.end());
  const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// GPU, precision, dense or experts.
std::string slice_of(const LayoutRow& row) {
  const bool eight_bit = row.request.training.precision == Precision::fp8;
  return row.gpu.id.substr(0, row.gpu.id.find('-')) + (eight_bit ? " 8-bit " : " 16-bit ") +
         (row.experts ? "experts " : "dense ");
}

// 6 FLOPs a parameter and token, as utilisation is quoted.
double utilisation(const LayoutRow& row) {
  const double active = static_cast<double>(active_parameters(parameter_groups(row.model)).value);
  const bool eight_bit = row.request.training.precision == Precision::fp8;
  const double peak = (eight_bit ? row.gpu.fp8_tflops : row.gpu.bf16_tflops) * 1e12;
  const auto gpus = static_cast<double>(row.request.hardware->count);
  return 6 * active * row.tokens() / row.seconds / gpus / peak;
}

// |estimated / measured - 1| of constant utilisation; nothing where no other source has such runs.
std::vector<double> baseline_errors(bool experts) {
  std::map<std::string, std::vector<const LayoutRow*>> slices;
  for (const Judged& j : judged()) slices[slice_of(*j.row)].push_back(j.row);
  std::vector<double> errors;
  for (const Judged& j : judged()) {
    if (j.row->experts != experts) continue;
    std::vector<double> others;
    for (const LayoutRow* other : slices[slice_of(*j.row)]) {
      if (other->source != j.row->source) others.push_back(utilisation(*other));
    }
    if (!others.empty()) errors.push_back(std::abs(utilisation(*j.row) / median(others) - 1));
  }
  return errors;
}

std::vector<double> errors_of(bool experts) {
  std::vector<double> errors;
  for (const Judged& j : judged()) {
    if (j.row->experts == experts) errors.push_back(j.error());
  }
  return errors;
}

void print_line(const std::string& name, const std::vector<const Judged*>& rows) {
  std::vector<double> errors;
  double bias = 0, inside = 0;
  for (const Judged* j : rows) {
    errors.push_back(j->error());
    bias += std::log(j->speed.step_seconds.expected / j->row->seconds);
    inside += j->inside() ? 1 : 0;
  }
  const auto n = static_cast<double>(rows.size());
  std::printf("%-52s %4zu rows  median %5.1f %%  p90 %5.1f %%  bias %+6.1f %%  inside %3.0f %%\n", name.c_str(),
              rows.size(), 100 * median(errors), 100 * quantile(errors, 0.9), 100 * (std::exp(bias / n) - 1),
              100 * inside / n);
}

std::map<std::string, std::vector<const Judged*>> groups() {
  std::map<std::string, std::vector<const Judged*>> all;
  for (const Judged& j : judged()) {
    if (!j.row->group.empty()) all[j.row->group].push_back(&j);
  }
  for (auto it = all.begin(); it != all.end();) {
    std::set<
        std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, Recompute>>
        layouts;
    for (const Judged* j : it->second) {
      const LayoutChoice& l = *j->row->request.layout;
      layouts.insert({l.tp, l.pp, l.vpp, l.cp, l.ep, j->row->request.training.micro_batch, l.sp,
                      j->row->request.training.recompute});
    }
    it = layouts.size() < 3 ? all.erase(it) : std::next(it);
  }
  return all;
}

double measured_rate(const Judged& j) { return j.row->tokens() / j.row->seconds; }
double estimated_rate(const Judged& j) { return j.row->tokens() / j.speed.step_seconds.expected; }

template <class Rate>
const Judged* fastest(const std::vector<const Judged*>& rows, Rate rate) {
  return *std::max_element(rows.begin(), rows.end(), [&](auto* a, auto* b) { return rate(*a) < rate(*b); });
}

template <class Rate>
std::vector<double> ranks(const std::vector<const Judged*>& rows, Rate rate) {
  std::vector<double> out;
  for (const Judged* a : rows) {
    double rank = 0;
    for (const Judged* b : rows) rank += rate(*b) < rate(*a) ? 1 : rate(*b) > rate(*a) ? 0 : 0.5;
    out.push_back(rank);
  }
  return out;
}

// Spearman: the correlation of the ranks.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace

TEST_CASE("step time: median error of dense runs at most 10 %, of runs with experts 20 %, and below the yardstick") {
  std::map<std::string, std::vector<const Judged*>> slices;
  for (const Judged& j : judged()) {
    slices[slice_of(*j.row) + std::string(name_of(j.row->request.training.framework)) + ", " + j.row->source].push_back(
        &j);
  }
  for (const auto& [name, rows] : slices) print_line(name, rows);
  const std::vector<double> dense = errors_of(false), experts = errors_of(true);
  std::printf(
      "dense: %zu rows, median %.1f %% (constant utilisation %.1f %%); experts: %zu rows, median %.1f %% (%.1f %%)\n",
      dense.size(), 100 * median(dense), 100 * median(baseline_errors(false)), experts.size(), 100 * median(experts),
      100 * median(baseline_errors(true)));
  CHECK(dense.size() >= 800);
  CHECK(experts.size() >= 100);
  CHECK(median(dense) <= 0.10);
  CHECK(median(experts) <= 0.20);
  CHECK(median(dense) < median(baseline_errors(false)));
  CHECK(median(experts) < median(baseline_errors(true)));
}

TEST_CASE("nine published runs in ten are inside the band") {
  double inside = 0;
  for (const Judged& j : judged()) inside += j.inside() ? 1 : 0;
  const double share = inside / static_cast<double>(judged().size());
  CHECK(share >= 0.88);
  CHECK(share <= 0.95);  // a band that holds everything says nothing
}

TEST_CASE("layouts measured side by side: the first choice is within 5 % of the best in four groups of five") {
  std::vector<double> correlations;
  double good = 0;
  const auto all = groups();
  for (const auto& [name, rows] : all) {
    const double best = measured_rate(*fastest(rows, measured_rate));
    const double share = measured_rate(*fastest(rows, estimated_rate)) / best;
    correlations.push_back(rank_correlation(ranks(rows, measured_rate), ranks(rows, estimated_rate)));
    good += share >= 0.95 ? 1 : 0;
    std::printf("%-36s %3zu rows  first choice %5.1f %% of the best  rank correlation %+.2f\n", name.c_str(),
                rows.size(), 100 * share, correlations.back());
  }
  CHECK(all.size() >= 20);
  CHECK(good / static_cast<double>(all.size()) >= 0.8);
  CHECK(median(correlations) >= 0.8);
}
