// The miniature autograd of ops.hpp on graphs small enough to walk by hand. A wide tensor has 100 bytes, a narrow
// one 10.
#include <doctest/doctest.h>

#include "vramplan/ops.hpp"

using namespace vramplan;

namespace {

constexpr Size kWide{{Symbol::h, Symbol::one, Symbol::one, Symbol::one}, 1, ElementType::int8};
constexpr Size kNarrow{{Symbol::f, Symbol::one, Symbol::one, Symbol::one}, 1, ElementType::int8};
constexpr Component kKept = Component::activations_mlp;

SymbolTable widths() {
  SymbolTable table;
  table[Symbol::one] = 1;
  table[Symbol::h] = 100;
  table[Symbol::f] = 10;
  return table;
}

// A graph whose input is a wide tensor.
Graph start(bool requires_grad = true) {
  Graph g(widths());
  g.input = g.tensor(kWide, kKept, requires_grad);
  return g;
}

TensorId wide(Graph& g, TensorId from, const OpTraits& traits = {}) { return g.apply({from}, kWide, kKept, traits); }
TensorId narrow(Graph& g, TensorId from, const OpTraits& traits = {}) {
  return g.apply({from}, kNarrow, kKept, traits);
}

std::int64_t live_bytes(const Graph& g, Phase phase, std::int32_t op) {
  Bytes sum;
  const LiveSet alive = live_at(g, phase, op);
  for (const LiveItem& item : alive.items()) sum += item.bytes;
  return sum.value;
}

std::int64_t live_bytes(const Graph& g, Phase phase, std::int32_t op, Component component) {
  Bytes sum;
  const LiveSet alive = live_at(g, phase, op);
  for (const LiveItem& item : alive.items()) {
    if (item.component == component) sum += item.bytes;
  }
  return sum.value;
}

Workspace workspace(std::int64_t bytes) { return {Bytes(bytes), kNarrow, Component::working_memory}; }

// The two descriptions of the same moment agree.
void check_consistent(const Graph& g) {
  const BlockProfile p = profile(g);
  CHECK(live_bytes(g, Phase::saved, 0) == p.saved.value);
  CHECK(live_bytes(g, Phase::forward_with_grad, p.forward_with_grad.op) == p.forward_with_grad.bytes.value);
  CHECK(live_bytes(g, Phase::forward_without_grad, p.forward_without_grad.op) == p.forward_without_grad.bytes.value);
  if (p.backward.op < 0) return;
  CHECK(live_bytes(g, Phase::backward, p.backward.op) == (p.backward.bytes - p.backward.parameter_gradients).value);
}

}  // namespace

TEST_CASE("a chain: what is saved stays through forward and goes as backward passes it") {
  Graph g = start();
  const TensorId y = narrow(g, g.input, {.saves = {g.input}});
  g.output = wide(g, y, {.saves = {y}});
  const BlockProfile p = profile(g);
  CHECK(p.input == Bytes(100));
  CHECK(p.saved == Bytes(110));
  CHECK(p.forward_without_grad.bytes == Bytes(110));  // x and y; then x is dropped, and y and z are as many
  CHECK(p.forward_without_grad.op == 0);
  CHECK(p.forward_with_grad.bytes == Bytes(210));
  CHECK(p.forward_with_grad.op == 1);
  CHECK(p.backward.bytes == Bytes(220));  // x, y, gradient of z, gradient of y
  CHECK(p.backward.op == 1);
  CHECK(live_bytes(g, Phase::backward, 0) == 210);  // x, gradient of y, gradient of x
  CHECK(live_bytes(g, Phase::backward, 1, Component::activation_gradients) == 110);
  CHECK(live_bytes(g, Phase::backward, 1, kKept) == 110);
  check_consistent(g);
}

TEST_CASE("nothing saved: forward holds two neighbours, backward only gradients") {
  Graph g = start();
  TensorId x = g.input;
  for (int i = 0; i < 5; ++i) x = wide(g, x);
  g.output = x;
  const BlockProfile p = profile(g);
  CHECK(p.saved == Bytes(0));
  CHECK(p.forward_with_grad.bytes == Bytes(200));
  CHECK(p.backward.bytes == Bytes(200));
  check_consistent(g);
}

TEST_CASE("a tensor that three operations save is one storage, and goes with the earliest of them") {
  Graph g = start();
  const TensorId q = narrow(g, g.input, {.saves = {g.input}});
  const TensorId k = narrow(g, g.input, {.saves = {g.input}});
  const TensorId v = narrow(g, g.input, {.saves = {g.input}});
  g.output = g.apply({q, k, v}, kWide, kKept);
  const BlockProfile p = profile(g);
  CHECK(p.saved == Bytes(100));
  CHECK(live_bytes(g, Phase::backward, 3) == 230);  // x, gradients of the output and of q, k, v
  CHECK(live_bytes(g, Phase::backward, 2) == 230);  // x, gradients of q, k, v and the first of x
  // x; gradients of q and k; two gradients of x, of which the second is added to the first and dropped.
  CHECK(live_bytes(g, Phase::backward, 1) == 320);
  CHECK(live_bytes(g, Phase::backward, 0) == 310);
  CHECK(p.backward.bytes == Bytes(320));
  CHECK(p.backward.op == 1);
  check_consistent(g);
}

TEST_CASE("one operation that saves a tensor twice frees it once") {
  Graph g = start();
  g.output = g.apply({g.input, g.input}, kWide, kKept, {.saves = {g.input, g.input}});  // x * x
  const BlockProfile p = profile(g);
  CHECK(p.saved == Bytes(100));
  CHECK(p.backward.bytes == Bytes(400));  // x, gradient of the output, both gradients of x
  check_consistent(g);
}

TEST_CASE("an addition hands its gradient on without a copy") {
  Graph g = start();
  const TensorId branch = wide(g, g.input, {.saves = {g.input}});
  g.output = g.apply({g.input, branch}, kWide, kKept, {.passes_gradient = true});
  const BlockProfile p = profile(g);
  CHECK(live_bytes(g, Phase::backward, 1) == 200);  // x and one gradient, of the sum, of x and of the branch
  CHECK(live_bytes(g, Phase::backward, 0) == 300);  // and what the branch gives to x
  CHECK(p.backward.bytes == Bytes(300));
  check_consistent(g);
}

TEST_CASE("a gradient that others share is not written to: the sum takes a storage of its own") {
  Graph g = start();
  const TensorId branch = wide(g, g.input);
  const TensorId sum = g.apply({g.input, branch}, kWide, kKept, {.passes_gradient = true});
  const TensorId other = wide(g, g.input);
  g.output = g.apply({sum, other}, kWide, kKept, {.passes_gradient = true});
  // Backward: one storage for sum and other; `other` gives x a gradient of its own (two); the shared one reaches x too
  // and is added to it; the branch's is added again.
  CHECK(live_bytes(g, Phase::backward, 3) == 100);
  CHECK(live_bytes(g, Phase::backward, 2) == 200);
  CHECK(live_bytes(g, Phase::backward, 1) == 200);
  CHECK(live_bytes(g, Phase::backward, 0) == 300);
  check_consistent(g);
}

TEST_CASE("backward in place writes the gradient over the saved input") {
  Graph in_place = start();
  in_place.output = wide(in_place, in_place.input, {.saves = {in_place.input}, .gradient_in_place = true});
  CHECK(profile(in_place).backward.bytes == Bytes(200));
  check_consistent(in_place);
  Graph apart = start();
  apart.output = wide(apart, apart.input, {.saves = {apart.input}});
  CHECK(profile(apart).backward.bytes == Bytes(300));
}

TEST_CASE("a view has no bytes, keeps its base alive and saves its base") {
  Graph g = start();
  const TensorId part = g.view(g.input, kNarrow);
  const TensorId y = narrow(g, part, {.saves = {part}});
  g.output = wide(g, y);
  const BlockProfile p = profile(g);
  CHECK(p.saved == Bytes(100));                                 // the whole storage of the base
  CHECK(p.forward_without_grad.bytes == Bytes(110));            // x and y, while the part is read
  CHECK(live_bytes(g, Phase::forward_without_grad, 2) == 110);  // y and z: the base went with the part
  CHECK(p.forward_with_grad.bytes == Bytes(210));
  check_consistent(g);
}

TEST_CASE("parts of one tensor: each gives the whole a gradient, added in place") {
  Graph g = start();
  const TensorId first = g.view(g.input, kNarrow);
  const TensorId second = g.view(g.input, kNarrow);
  g.output = g.apply({first, second}, kNarrow, kKept);
  CHECK(live_bytes(g, Phase::backward, 2) == 30);   // gradients of the output and of both parts
  CHECK(live_bytes(g, Phase::backward, 1) == 120);  // those of the parts, and the whole that the second part fills
  CHECK(live_bytes(g, Phase::backward, 0) == 210);  // the first part fills a whole as well, which is added
  check_consistent(g);
}

TEST_CASE("workspace lives while its operation runs") {
  Graph g = start();
  const TensorId y = wide(g, g.input, {.forward = workspace(7), .backward = workspace(13)});
  g.output = wide(g, y);
  const BlockProfile p = profile(g);
  CHECK(p.forward_with_grad.bytes == Bytes(207));
  CHECK(p.forward_with_grad.op == 0);
  CHECK(live_bytes(g, Phase::forward_with_grad, 1) == 200);
  CHECK(p.backward.bytes == Bytes(213));
  CHECK(p.backward.op == 0);
  CHECK(live_bytes(g, Phase::backward, 1) == 200);
  CHECK(live_bytes(g, Phase::backward, 0, Component::working_memory) == 13);
  check_consistent(g);
}

TEST_CASE("a name that Python still holds keeps its tensor until there") {
  const auto build = [](bool held) {
    Graph g = start(false);
    const TensorId y = wide(g, g.input);
    const TensorId z = wide(g, y);
    const TensorId w = wide(g, z);
    if (held) g.hold({y});
    g.output = w;
    return g;
  };
  const Graph free = build(false);
  CHECK(profile(free).forward_without_grad.bytes == Bytes(200));
  const Graph held = build(true);
  CHECK(profile(held).forward_without_grad.bytes == Bytes(300));
  CHECK(profile(held).forward_without_grad.op == 2);
  check_consistent(held);
}

TEST_CASE("holding a tensor makes no gradient of it") {
  const auto peak = [](bool held) {
    Graph g = start();
    const TensorId y = wide(g, g.input);
    g.output = wide(g, y);
    if (held) g.hold({y, kNoTensor});
    return profile(g).backward.bytes;
  };
  CHECK(peak(true) == peak(false));
}

TEST_CASE("held to the end: the block's input is there while its last operation runs") {
  Graph g = start(false);
  g.output = wide(g, wide(g, wide(g, g.input)));
  g.hold_to_end(g.input);
  g.hold_to_end(g.output);
  CHECK(profile(g).forward_without_grad.bytes == Bytes(300));
  check_consistent(g);
}

TEST_CASE("without gradients nothing is saved, and there is no backward") {
  Graph g = start(false);
  const TensorId y = narrow(g, g.input, {.saves = {g.input}, .backward = workspace(1000)});
  g.output = wide(g, y, {.saves = {y}});
  const BlockProfile p = profile(g);
  CHECK(p.saved == Bytes(0));
  CHECK(p.forward_with_grad.bytes == p.forward_without_grad.bytes);
  CHECK(p.backward.bytes == Bytes(0));
  CHECK(p.parameter_gradients == Bytes(0));
}

TEST_CASE("forward of a checkpointed block drops what forward with gradients keeps") {
  Graph g = start();
  TensorId x = g.input;
  for (int i = 0; i < 4; ++i) x = wide(g, x, {.saves = {x}});
  g.output = x;
  const BlockProfile p = profile(g);
  CHECK(p.forward_without_grad.bytes == Bytes(200));
  CHECK(p.forward_with_grad.bytes == Bytes(500));
  CHECK(p.saved == Bytes(400));
  CHECK(p.backward.bytes == Bytes(600));  // four saved, two gradients
  check_consistent(g);
}

TEST_CASE("what belongs to somebody else is not counted, but its gradient is") {
  Graph g(widths());
  g.input = g.external(kWide, Component::checkpoints, true);
  g.output = narrow(g, g.input, {.saves = {g.input}});
  const BlockProfile p = profile(g);
  CHECK(p.input == Bytes(100));
  CHECK(p.saved == Bytes(0));
  CHECK(p.forward_with_grad.bytes == Bytes(10));
  CHECK(p.backward.bytes == Bytes(110));
  check_consistent(g);
}

TEST_CASE("gradients of parameters add up through backward and are told apart") {
  Graph g = start();
  const TensorId y = narrow(g, g.input, {.saves = {g.input}, .parameter_gradients = Bytes(1000)});
  g.output = narrow(g, y, {.saves = {y}, .parameter_gradients = Bytes(50)});
  const BlockProfile p = profile(g);
  CHECK(p.parameter_gradients == Bytes(1050));
  // The last operation to run: x, gradients of y and x, both parameter gradients.
  CHECK(p.backward.bytes == Bytes(100 + 10 + 100 + 1050));
  CHECK(p.backward.op == 0);
  CHECK(p.backward.parameter_gradients == Bytes(1050));
  check_consistent(g);
}

TEST_CASE("the gradient starts where training does") {
  Graph g = start(false);
  const TensorId frozen = wide(g, g.input);
  const TensorId trained = wide(g, frozen, {.saves = {frozen}, .parameter_gradients = Bytes(5)});
  g.output = wide(g, trained);
  const BlockProfile p = profile(g);
  CHECK(g.at(frozen).requires_grad == false);
  CHECK(g.at(trained).requires_grad);
  CHECK(p.saved == Bytes(100));
  CHECK(p.backward.bytes == Bytes(300));            // frozen, gradients of the output and of `trained`
  CHECK(live_bytes(g, Phase::backward, 1) == 200);  // frozen and the gradient of `trained`: the frozen input has none
  check_consistent(g);
}

TEST_CASE("an operation that no gradient reaches does not run backward") {
  Graph g = start();
  const TensorId side = wide(g, g.input, {.saves = {g.input}, .backward = workspace(1000)});
  (void)side;
  g.output = wide(g, g.input);
  CHECK(profile(g).backward.bytes == Bytes(300));  // x saved by the side branch, two gradients
}

TEST_CASE("FLOPs and cached copies of weights add up") {
  Graph g = start();
  g.output = wide(g, wide(g, g.input, {.flops = Flops(3)}), {.flops = Flops(4)});
  g.cache_weight_copy(Bytes(8));
  g.cache_weight_copy(Bytes(2));
  CHECK(profile(g).flops == Flops(7));
  CHECK(profile(g).cached_weight_copies == Bytes(10));
}

TEST_CASE("a graph that is too large says so") {
  Graph g = start();
  TensorId x = g.input;
  for (std::size_t i = 0; i < Graph::kMaxOps; ++i) x = narrow(g, x);
  CHECK_FALSE(g.overflowed());
  (void)narrow(g, x);
  CHECK(g.overflowed());
  Graph many = start();
  many.run({many.input, many.input, many.input, many.input, many.input, many.input, many.input}, {}, {});
  CHECK(many.overflowed());
}
