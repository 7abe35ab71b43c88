// Which layouts suit a model.
#include <algorithm>

#include "vramplan/enum_names.hpp"
#include "vramplan/layout.hpp"

namespace vramplan {
namespace {

bool divides(Dim n, Dim width) { return n > 0 && width % n == 0; }
bool deals_heads(Dim tp, Dim heads, Dim kv_heads) {
  return divides(tp, heads) && (divides(tp, kv_heads) || divides(kv_heads, tp));
}

// Whether tp ranks can share a mixer or an MLP evenly.
struct SharedBy {
  Dim tp;
  bool operator()(const Attention& a) const { return deals_heads(tp, a.heads, a.kv_heads); }
  bool operator()(const LatentAttention& a) const { return divides(tp, a.heads); }
  bool operator()(const CompressedAttention& a) const { return divides(tp, a.heads) && divides(tp, a.o_groups); }
  bool operator()(const Mamba1& m) const { return divides(tp, m.inner); }
  bool operator()(const Mamba2& m) const { return deals_heads(tp, m.heads, m.groups); }
  bool operator()(const GatedDeltaNet& m) const { return divides(tp, m.value_heads) && divides(tp, m.key_heads); }
  bool operator()(const KimiDeltaAttention& m) const { return divides(tp, m.heads); }
  bool operator()(const LightningAttention& m) const { return divides(tp, m.heads); }
  bool operator()(const ShortConvolution&) const { return true; }
};
struct MlpSharedBy {
  Dim tp, etp;
  bool operator()(const DenseMlp& m) const { return divides(tp, m.intermediate_size); }
  bool operator()(const MoeMlp& m) const {
    return divides(etp, m.intermediate_size) && divides(tp, m.shared_intermediate_size);
  }
};

bool heads_divide(const ModelArchitecture& m, Dim tp) {
  return std::all_of(m.groups.begin(), m.groups.end(), [&](const LayerGroup& g) {
    return std::all_of(g.mixers.begin(), g.mixers.end(),
                       [&](const Mixer& mixer) { return std::visit(SharedBy{tp}, mixer); });
  });
}
LayoutChoice with(LayoutChoice layout, std::int64_t LayoutChoice::*field, std::int64_t value) {
  layout.*field = value;
  return layout;
}
bool widths_divide(const ModelArchitecture& m, const LayoutChoice& layout) {
  const MlpSharedBy evenly{layout.tp, expert_tensor_ranks(layout)};
  return std::all_of(m.groups.begin(), m.groups.end(), [&](const LayerGroup& g) {
    return std::all_of(g.mlps.begin(), g.mlps.end(), [&](const Mlp& mlp) { return std::visit(evenly, mlp); });
  });
}
// All experts of a layer, of each kind of layer, are dealt out evenly.
bool experts_divide(const ModelArchitecture& m, Dim ep) {
  bool any = false;
  for (const LayerGroup& g : m.groups) {
    for (const Mlp& mlp : g.mlps) {
      const auto* moe = std::get_if<MoeMlp>(&mlp);
      if (moe == nullptr) continue;
      any = true;
      if (!divides(ep, moe->experts)) return false;
    }
  }
  return any || ep == 1;
}

// A rule broken by the value of one field, with the legal values next to it.
template <class Legal>
void check(Problems& problems, const char* field, LayoutRule rule, Dim value, Dim largest, Legal legal) {
  if (legal(value)) return;
  Dim below = std::min(value, largest + 1) - 1;
  while (below > 1 && !legal(below)) --below;
  Dim above = value + 1;
  while (above <= largest && !legal(above)) ++above;
  Problem problem{ProblemCode::illegal_layout,
                  std::string("/layout/") + field,
                  {{"rule", std::string(name_of(rule))}, {"value", value}, {"below", std::max<Dim>(below, 1)}}};
  problem.arguments.push_back({"above", above <= largest ? above : std::max<Dim>(below, 1)});
  problems.push_back(std::move(problem));
}

// Whether the ends of a pipeline leave as many layers as the chunks of the other stages take, at least one each.
bool ends_fit(Dim layers, const LayoutChoice& l) {
  const Dim first = l.first_stage_layers.value_or(0), last = l.last_stage_layers.value_or(0);
  const Dim open = l.pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const Dim left = layers - first - last;
  return first % l.vpp == 0 && last % l.vpp == 0 && (open == 0 ? left == 0 : left >= open * l.vpp);
}

void check_ends(Problems& problems, Dim layers, const LayoutChoice& l) {
  const auto check_end = [&](const char* field, std::optional<std::int64_t> LayoutChoice::*end) {
    if (!(l.*end)) return;
    if (l.pp == 1) {
      const std::string name = std::string("layout.").append(field);
      problems.push_back({ProblemCode::inconsistent,
                          std::string("/layout/").append(field),
                          {{"field", name}, {"other", "layout.pp"}}});
      return;
    }
    check(problems, field, LayoutRule::ends_share_layers, *(l.*end), layers, [&](Dim value) {
      LayoutChoice other = l;
      other.*end = value;
      return ends_fit(layers, other);
    });
  };
  check_end("first_stage_layers", &LayoutChoice::first_stage_layers);
  check_end("last_stage_layers", &LayoutChoice::last_stage_layers);
}

constexpr Dim kMostRanks = 1024;  // as far as legal values are looked for

}  // namespace

Problems check_layout(const ModelArchitecture& model, const LayoutChoice& l) {
  Problems problems;
  const Dim layers = layers_of(model);
  check(problems, "tp", LayoutRule::tp_divides_heads, l.tp, kMostRanks,
        [&](Dim tp) { return heads_divide(model, tp); });
  check(problems, "tp", LayoutRule::tp_divides_widths, l.tp, kMostRanks,
        [&](Dim tp) { return widths_divide(model, with(l, &LayoutChoice::tp, tp)) && divides(tp, model.hidden_size); });
  check(problems, "pp", LayoutRule::stages_within_layers, l.pp, layers, [&](Dim pp) { return pp * l.vpp <= layers; });
  check(problems, "vpp", LayoutRule::chunks_need_stages, l.vpp, layers, [&](Dim vpp) { return vpp == 1 || l.pp > 1; });
  check_ends(problems, layers, l);
  check(problems, "ep", LayoutRule::ep_divides_experts, l.ep, kMostRanks,
        [&](Dim ep) { return experts_divide(model, ep); });
  const Dim ranks = l.dp * l.cp * l.tp;
  check(problems, "ep", LayoutRule::ep_divides_ranks, l.ep, ranks,
        [&](Dim ep) { return ranks % (ep * expert_tensor_ranks(with(l, &LayoutChoice::ep, ep))) == 0; });
  if (l.sp && l.tp == 1) {
    problems.push_back({ProblemCode::inconsistent, "/layout/sp", {{"field", "layout.sp"}, {"other", "layout.tp"}}});
  }
  return problems;
}

}  // namespace vramplan
