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

ProductTable products() { return products_of(widths()); }
Bytes bytes(const Terms& terms) { return terms.at(products()); }
Peak peak(const Frontier& f) { return f.at(products()); }

std::int64_t live_bytes(const Graph& g, Phase phase, std::int32_t op) {
  Bytes sum;
  const LiveSet alive = live_at(g, phase, op);
  for (const LiveItem& item : alive.items()) sum += bytes_of(item.size, g.widths());
  return sum.value;
}

std::int64_t live_bytes(const Graph& g, Phase phase, std::int32_t op, Component component) {
  Bytes sum;
  const LiveSet alive = live_at(g, phase, op);
  for (const LiveItem& item : alive.items()) {
    if (item.component == component) sum += bytes_of(item.size, g.widths());
  }
  return sum.value;
}

Workspace workspace(std::int32_t bytes) { return {Component::working_memory, {Size{{}, bytes, ElementType::int8}}}; }

Polynomial operations(std::int64_t n) {
  Polynomial p;
  p.coefficient[static_cast<std::size_t>(Product::one)] = n;
  return p;
}

// The two descriptions of the same moment agree.
void check_consistent(const Graph& g) {
  const BlockProfile p = profile(g);
  CHECK(live_bytes(g, Phase::saved, 0) == bytes(p.saved).value);
  CHECK(live_bytes(g, Phase::forward_with_grad, peak(p.forward_with_grad).op) == peak(p.forward_with_grad).bytes.value);
  CHECK(live_bytes(g, Phase::forward_without_grad, peak(p.forward_without_grad).op) ==
        peak(p.forward_without_grad).bytes.value);
  if (peak(p.backward).op < 0) return;
  CHECK(live_bytes(g, Phase::backward, peak(p.backward).op) ==
        (peak(p.backward).bytes - peak(p.backward).parameter_gradients).value);
}

}  // namespace

TEST_CASE("a chain: what is saved stays through forward and goes as backward passes it") {
  Graph g = start();
  const TensorId y = narrow(g, g.input, {.saves = {g.input}});
  g.output = wide(g, y, {.saves = {y}});
  const BlockProfile p = profile(g);
  CHECK(bytes(p.input) == Bytes(100));
  CHECK(bytes(p.saved) == Bytes(110));
  CHECK(peak(p.forward_without_grad).bytes == Bytes(110));  // x and y; then x is dropped, and y and z are as many
  CHECK(peak(p.forward_without_grad).op == 0);
  CHECK(peak(p.forward_with_grad).bytes == Bytes(210));
  CHECK(peak(p.forward_with_grad).op == 1);
  CHECK(peak(p.backward).bytes == Bytes(220));  // x, y, gradient of z, gradient of y
  CHECK(peak(p.backward).op == 1);
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
  CHECK(bytes(p.saved) == Bytes(0));
  CHECK(peak(p.forward_with_grad).bytes == Bytes(200));
  CHECK(peak(p.backward).bytes == Bytes(200));
  check_consistent(g);
}

TEST_CASE("a tensor that three operations save is one storage, and goes with the earliest of them") {
  Graph g = start();
  const TensorId q = narrow(g, g.input, {.saves = {g.input}});
  const TensorId k = narrow(g, g.input, {.saves = {g.input}});
  const TensorId v = narrow(g, g.input, {.saves = {g.input}});
  g.output = g.apply({q, k, v}, kWide, kKept);
  const BlockProfile p = profile(g);
  CHECK(bytes(p.saved) == Bytes(100));
  CHECK(live_bytes(g, Phase::backward, 3) == 230);  // x, gradients of the output and of q, k, v
  CHECK(live_bytes(g, Phase::backward, 2) == 230);  // x, gradients of q, k, v and the first of x
  // x; gradients of q and k; two gradients of x, of which the second is added to the first and dropped.
  CHECK(live_bytes(g, Phase::backward, 1) == 320);
  CHECK(live_bytes(g, Phase::backward, 0) == 310);
  CHECK(peak(p.backward).bytes == Bytes(320));
  CHECK(peak(p.backward).op == 1);
  check_consistent(g);
}

TEST_CASE("one operation that saves a tensor twice frees it once") {
  Graph g = start();
  g.output = g.apply({g.input, g.input}, kWide, kKept, {.saves = {g.input, g.input}});  // x * x
  const BlockProfile p = profile(g);
  CHECK(bytes(p.saved) == Bytes(100));
  CHECK(peak(p.backward).bytes == Bytes(400));  // x, gradient of the output, both gradients of x
  check_consistent(g);
}

TEST_CASE("an addition hands its gradient on without a copy") {
  Graph g = start();
  const TensorId branch = wide(g, g.input, {.saves = {g.input}});
  g.output = g.apply({g.input, branch}, kWide, kKept, {.passes_gradient = true});
  const BlockProfile p = profile(g);
  CHECK(live_bytes(g, Phase::backward, 1) == 200);  // x and one gradient, of the sum, of x and of the branch
  CHECK(live_bytes(g, Phase::backward, 0) == 300);  // and what the branch gives to x
  CHECK(peak(p.backward).bytes == Bytes(300));
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
  CHECK(peak(profile(in_place).backward).bytes == Bytes(200));
  check_consistent(in_place);
  Graph apart = start();
  apart.output = wide(apart, apart.input, {.saves = {apart.input}});
  CHECK(peak(profile(apart).backward).bytes == Bytes(300));
}

TEST_CASE("gradients made in forward are handed out, not made again") {
  Graph g = start();
  const TensorId made = g.tensor(kWide, kKept, false);
  g.output = g.tensor(kNarrow, kKept, true);
  g.run({g.input}, {g.output, made}, {.saves = {made}, .saves_gradients = true, .parameter_gradients = Bytes(7)});
  const BlockProfile p = profile(g);
  CHECK(bytes(p.saved) == Bytes(100));
  CHECK(peak(p.forward_with_grad).bytes == Bytes(210));  // the input, what it makes, and the input's gradient
  CHECK(peak(p.backward).bytes == Bytes(117));           // gradients of the output, of the input, of the parameter
  check_consistent(g);
}

TEST_CASE("a gradient made piece by piece takes the place of the one it is made from") {
  for (const bool in_pieces : {false, true}) {
    Graph g = start();
    const TensorId y = wide(g, g.input, {.gradient_in_pieces = in_pieces});
    g.output = narrow(g, y);
    const BlockProfile p = profile(g);
    // Gradients of the output and of y, then of y and of x; or of x alone.
    CHECK(live_bytes(g, Phase::backward, 1) == 110);
    CHECK(live_bytes(g, Phase::backward, 0) == (in_pieces ? 100 : 200));
    CHECK(peak(p.backward).bytes == Bytes(in_pieces ? 110 : 200));
    check_consistent(g);
  }
}

TEST_CASE("what the caller keeps goes with the first operation of the graph") {
  Graph g = start();
  const TensorId y = narrow(g, g.input);
  g.output = narrow(g, y);
  g.keep(g.output);
  CHECK(bytes(profile(g).saved) == Bytes(10));
  CHECK(live_bytes(g, Phase::backward, 1) == 30);   // kept, gradients of the output and of y
  CHECK(live_bytes(g, Phase::backward, 0) == 120);  // kept, gradients of y and of x
  check_consistent(g);
}

TEST_CASE("a view has no bytes, keeps its base alive and saves its base") {
  Graph g = start();
  const TensorId part = g.view(g.input, kNarrow);
  const TensorId y = narrow(g, part, {.saves = {part}});
  g.output = wide(g, y);
  const BlockProfile p = profile(g);
  CHECK(bytes(p.saved) == Bytes(100));                          // the whole storage of the base
  CHECK(peak(p.forward_without_grad).bytes == Bytes(110));      // x and y, while the part is read
  CHECK(live_bytes(g, Phase::forward_without_grad, 2) == 110);  // y and z: the base went with the part
  CHECK(peak(p.forward_with_grad).bytes == Bytes(210));
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
  CHECK(peak(p.forward_with_grad).bytes == Bytes(207));
  CHECK(peak(p.forward_with_grad).op == 0);
  CHECK(live_bytes(g, Phase::forward_with_grad, 1) == 200);
  CHECK(peak(p.backward).bytes == Bytes(213));
  CHECK(peak(p.backward).op == 0);
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
  CHECK(peak(profile(free).forward_without_grad).bytes == Bytes(200));
  const Graph held = build(true);
  CHECK(peak(profile(held).forward_without_grad).bytes == Bytes(300));
  CHECK(peak(profile(held).forward_without_grad).op == 2);
  check_consistent(held);
}

TEST_CASE("holding a tensor makes no gradient of it") {
  const auto backward = [](bool held) {
    Graph g = start();
    const TensorId y = wide(g, g.input);
    g.output = wide(g, y);
    if (held) g.hold({y, kNoTensor});
    return peak(profile(g).backward).bytes;
  };
  CHECK(backward(true) == backward(false));
}

TEST_CASE("held to the end: the block's input is there while its last operation runs") {
  Graph g = start(false);
  g.output = wide(g, wide(g, wide(g, g.input)));
  g.hold_to_end(g.input);
  g.hold_to_end(g.output);
  CHECK(peak(profile(g).forward_without_grad).bytes == Bytes(300));
  check_consistent(g);
}

TEST_CASE("without gradients nothing is saved, and there is no backward") {
  Graph g = start(false);
  const TensorId y = narrow(g, g.input, {.saves = {g.input}, .backward = workspace(1000)});
  g.output = wide(g, y, {.saves = {y}});
  const BlockProfile p = profile(g);
  CHECK(bytes(p.saved) == Bytes(0));
  CHECK(peak(p.forward_with_grad).bytes == peak(p.forward_without_grad).bytes);
  CHECK(peak(p.backward).bytes == Bytes(0));
  CHECK(p.parameter_gradients == Bytes(0));
}

TEST_CASE("forward of a checkpointed block drops what forward with gradients keeps") {
  Graph g = start();
  TensorId x = g.input;
  for (int i = 0; i < 4; ++i) x = wide(g, x, {.saves = {x}});
  g.output = x;
  const BlockProfile p = profile(g);
  CHECK(peak(p.forward_without_grad).bytes == Bytes(200));
  CHECK(peak(p.forward_with_grad).bytes == Bytes(500));
  CHECK(bytes(p.saved) == Bytes(400));
  CHECK(peak(p.backward).bytes == Bytes(600));  // four saved, two gradients
  check_consistent(g);
}

TEST_CASE("what belongs to somebody else is not counted, but its gradient is") {
  Graph g(widths());
  g.input = g.external(kWide, Component::checkpoints, true);
  g.output = narrow(g, g.input, {.saves = {g.input}});
  const BlockProfile p = profile(g);
  CHECK(bytes(p.input) == Bytes(100));
  CHECK(bytes(p.saved) == Bytes(0));
  CHECK(peak(p.forward_with_grad).bytes == Bytes(10));
  CHECK(peak(p.backward).bytes == Bytes(110));
  check_consistent(g);
}

TEST_CASE("gradients of parameters add up through backward and are told apart") {
  Graph g = start();
  const TensorId y = narrow(g, g.input, {.saves = {g.input}, .parameter_gradients = Bytes(1000)});
  g.output = narrow(g, y, {.saves = {y}, .parameter_gradients = Bytes(50)});
  const BlockProfile p = profile(g);
  CHECK(p.parameter_gradients == Bytes(1050));
  // The last operation to run: x, gradients of y and x, both parameter gradients.
  CHECK(peak(p.backward).bytes == Bytes(100 + 10 + 100 + 1050));
  CHECK(peak(p.backward).op == 0);
  CHECK(peak(p.backward).parameter_gradients == Bytes(1050));
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
  CHECK(bytes(p.saved) == Bytes(100));
  CHECK(peak(p.backward).bytes == Bytes(300));      // frozen, gradients of the output and of `trained`
  CHECK(live_bytes(g, Phase::backward, 1) == 200);  // frozen and the gradient of `trained`: the frozen input has none
  check_consistent(g);
}

TEST_CASE("an operation that no gradient reaches does not run backward") {
  Graph g = start();
  const TensorId side = wide(g, g.input, {.saves = {g.input}, .backward = workspace(1000)});
  (void)side;
  g.output = wide(g, g.input);
  CHECK(peak(profile(g).backward).bytes == Bytes(300));  // x saved by the side branch, two gradients
}

TEST_CASE("gradients that backward makes before it first asks for a saved tensor") {
  const auto build = [](const Polynomial& flops) {
    Graph g = start();
    const TensorId y = narrow(g, g.input, {.saves = {g.input}});
    const TensorId z = wide(g, y, {.flops = flops});
    g.output = wide(g, z);
    return g;
  };
  const Graph plain = build({});
  CHECK(bytes(profile(plain).entering) == Bytes(10));  // of y: those of z and of the output are used up
  CHECK(profile(plain).enters_at == 0);
  CHECK(live_bytes(plain, Phase::entering, 0) == 10);
  const Graph product = build(operations(1));  // it asks for its weight
  CHECK(bytes(profile(product).entering) == Bytes(100));
  CHECK(profile(product).enters_at == 1);
  CHECK(live_bytes(product, Phase::entering, 1) == 100);
}

TEST_CASE("FLOPs and cached copies of weights add up") {
  Graph g = start();
  g.output = wide(g, wide(g, g.input, {.flops = operations(3)}), {.flops = operations(4)});
  g.cache_weight_copy(Bytes(8));
  g.cache_weight_copy(Bytes(2));
  CHECK(profile(g).flops == operations(7));
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

TEST_CASE("a size is a polynomial of batch and length") {
  SymbolTable table = widths();
  const Size scores{{Symbol::b, Symbol::h, Symbol::s, Symbol::w}, 3, ElementType::bf16};
  table[Symbol::b] = 2;
  table[Symbol::s] = 7;
  table[Symbol::w] = 5;
  const auto polynomial = polynomial_of(scores, table);
  REQUIRE(polynomial.has_value());
  CHECK(Terms(*polynomial).at(products_of(table)) == Bytes(2 * 3 * 100 * (2 * 7 * 5)));
  CHECK(bytes_of(scores.halved(), table) == Bytes(3 * 100 * (2 * 7 * 5)));
  CHECK_FALSE(polynomial_of(Size{{Symbol::b, Symbol::b, Symbol::s, Symbol::one}}, table).has_value());
}

TEST_CASE("the highest moment depends on batch and length: each size finds its own") {
  SymbolTable table = widths();
  Graph g(table);
  const Size tokens{{Symbol::b, Symbol::s, Symbol::one, Symbol::one}, 1, ElementType::int8};
  g.input = g.tensor(kNarrow, kKept, false);
  const TensorId fixed = g.apply({g.input}, kWide, kKept);  // 110 whatever the batch
  g.output = g.apply({g.input}, tokens, kKept);
  g.hold({fixed});
  const BlockProfile p = profile(g);
  const auto at = [&](std::int64_t b) {
    table[Symbol::b] = b;
    table[Symbol::s] = 10;
    return p.forward_without_grad.at(products_of(table));
  };
  CHECK(at(1).bytes == Bytes(100 + 10 + 10));
  CHECK(at(50).bytes == Bytes(100 + 10 + 500));
  // So large that plain arithmetic would wrap: saturates instead.
  CHECK(at(kSaturated / 2).bytes == Bytes(kSaturated));
}

TEST_CASE(
    "a selective checkpoint keeps cached results to the second run; compiled, only those that backward asks for") {
  Graph g = start();
  const TensorId a = wide(g, g.input);
  g.cache(a);
  const TensorId b = wide(g, a, {.saves = {a}});
  const TensorId c = wide(g, b);
  g.cache(c);  // d, which is saved, is made of it
  const TensorId d = narrow(g, c);
  const TensorId e = wide(g, d, {.saves = {d}});
  g.output = wide(g, e);
  g.cache(g.output);  // nobody asks
  g.hold_to_end(g.input);
  g.hold_to_end(g.output);
  const BlockProfile eager = profile(g);
  CHECK(bytes(eager.cached) == Bytes(300));
  CHECK(peak(eager.forward_without_grad).bytes == Bytes(100 + 300 + 100));  // input, cached, and e at the end
  // The second run starts with all that is cached, and makes b; then c goes, as nothing has saved it.
  CHECK(peak(eager.forward_with_grad).bytes == Bytes(100 + 300 + 100));
  CHECK(live_bytes(g, Phase::cached, 0) == 300);
  g.drop_idle_cache();
  CHECK(bytes(profile(g).cached) == Bytes(200));
}

TEST_CASE("a caller that holds the output and its gradient keeps both to the end of backward") {
  const auto chain = [](bool held) {
    Graph g = start();
    const TensorId y = narrow(g, g.input, {.saves = {g.input}});
    g.output = wide(g, y, {.saves = {y}});
    if (held) g.hold_output_in_backward();
    return g;
  };
  const Graph free = chain(false);
  // The second operation: both saved tensors, the gradient that enters and the one it makes.
  CHECK(peak(profile(free).backward).bytes == Bytes(100 + 10 + 100 + 10));
  const Graph held = chain(true);
  // The first: its saved input and both gradients; the output and the gradient that entered are still there.
  CHECK(peak(profile(held).backward).bytes == Bytes(100 + 10 + 100 + 100 + 100));
  check_consistent(held);
}

TEST_CASE("a held gradient is not written into: what is added to it goes into the other one") {
  Graph g = start();
  const TensorId y = narrow(g, g.input);
  const TensorId z = wide(g, y);
  g.output = g.apply({g.input, z}, kWide, kKept, {.passes_gradient = true});
  CHECK(peak(profile(g).backward).bytes == Bytes(100 + 10 + 100));  // passed on, through y, into a second, added
  g.hold_output_in_backward();
  // The output beside them.
  CHECK(peak(profile(g).backward).bytes == Bytes(100 + 100 + 10 + 100));
  check_consistent(g);
}

TEST_CASE("what forward leaves in the allocator's cache leaves scores out") {
  constexpr Size kTokens{{Symbol::b, Symbol::s, Symbol::one, Symbol::one}, 1, ElementType::int8};
  constexpr Size kScores{{Symbol::b, Symbol::s, Symbol::s, Symbol::one}, 1, ElementType::int8};
  Graph g(widths());
  g.input = g.external(kTokens, kKept, false);
  const TensorId scores = g.apply({g.input}, kScores, kKept);
  g.output = g.apply({scores}, kTokens, kKept);
  SymbolTable sized = widths();
  sized[Symbol::b] = 2;
  sized[Symbol::s] = 30;
  const BlockProfile p = profile(g);
  CHECK(p.forward_without_grad.at(products_of(sized)).bytes == Bytes(2 * 30 * 30 + 2 * 30));
  CHECK(p.left_in_cache.at(products_of(sized)).bytes == Bytes(2 * 30));
}
