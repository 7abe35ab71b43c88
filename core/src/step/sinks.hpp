// What a description of an event is told to: `list` for what is held and counted before, `term` for count x each x
// ceil(product of factors / ranks), `saved` and `moment` for what a graph keeps; `side_list` and `side` for what FSDP2
// takes on a stream of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "step/model_in_step.hpp"
#include "vramplan/step.hpp"

namespace vramplan {

// Adds bytes only.
struct ByteSink {
  Bytes bytes;
  void list(const ModelInStep& m, Holding h) { bytes += m.bytes_of(h); }
  void side_list(const ModelInStep& m, Holding h) { list(m, h); }
  template <class... Factors>
  void side(Component component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    term(component, each, ranks, count, factors...);
  }
  template <class... Factors>
  void term(Component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    if (count == 0) return;
    std::int64_t product = 1;
    ((product = saturating_multiply(product, factors.value)), ...);
    if (ranks > 1) product = divide_up(product, ranks);
    bytes += Bytes(saturating_multiply(saturating_multiply(count, each), product));
  }
  // A term whose product is known already.
  template <class... Factors>
  void known(Bytes one, Component, std::int64_t, std::int64_t count, const Factors&...) {
    bytes += one * count;
  }
  void saved(const WalkedGraph& block, std::int64_t layers) { bytes += block.saved * layers; }
  void pinned(const WalkedGraph& block, std::int64_t layers) { bytes += block.pinned * layers; }
  void cached(const WalkedGraph& block, std::int64_t layers) { bytes += block.cached * layers; }
  void entering(const WalkedGraph& block) { bytes += block.entering; }
  void moment(const WalkedGraph&, const Peak& peak, Phase, Component) { bytes += peak.bytes; }
};

// Adds bytes of the main stream only.
struct MainStreamSink : ByteSink {
  void side_list(const ModelInStep&, Holding) {}
  template <class... Factors>
  void side(Component, std::int64_t, std::int64_t, std::int64_t, const Factors&...) {}
};

// Keeps what the bytes are.
struct ContributionSink {
  std::vector<Contribution> out;
  void list(const ModelInStep& m, Holding h) {
    const Contributions held = contributions_of(m, h);
    out.insert(out.end(), held.begin(), held.end());
  }
  void side_list(const ModelInStep& m, Holding h) { list(m, h); }
  template <class... Factors>
  void side(Component component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    term(component, each, ranks, count, factors...);
  }
  template <class... Factors>
  void term(Component component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    one({component, each, {Factor(factors)...}, ranks, count});
  }
  template <class... Factors>
  void known(Bytes, Component component, std::int64_t each, std::int64_t count, const Factors&... factors) {
    term(component, each, 1, count, factors...);
  }
  void one(const Contribution& c) {
    if (c.bytes().value != 0) out.push_back(c);
  }
  void item(const SymbolTable& symbols, const LiveItem& live, std::int64_t times) {
    Contribution c(live.component, constant_bytes(live.size), {}, 1, times);
    for (const Symbol s : live.size.symbols) {
      if (s != Symbol::one) c.factors[c.factor_count++] = {name_of(s), symbols[s]};
    }
    one(c);
  }
  void items(const WalkedGraph& block, Phase phase, std::int64_t times) {
    const LiveSet set = live_at(block.graph(), phase, block.profile().enters_at);
    for (const LiveItem& live : set.items()) item(block.symbols, live, times);
  }
  void saved(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::saved, layers); }
  void pinned(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::pinned, layers); }
  void cached(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::cached, layers); }
  void entering(const WalkedGraph& block) { items(block, Phase::entering, 1); }
  void moment(const WalkedGraph& block, const Peak& peak, Phase phase, Component gradients) {
    const LiveSet set = live_at(block.graph(), phase, peak.op);
    for (const LiveItem& live : set.items()) item(block.symbols, live, 1);
    term(gradients, 1, 1, 1, Factor{"G_running", peak.parameter_gradients.value});
    term(Component::optimizer_temporaries, 1, 1, 1, Factor{"U_running", peak.update.value});
  }
};

}  // namespace vramplan
