// The components of a memory breakdown, and the sizes they are made of.
//
// A size is a product of symbols (micro-batch, sequence, widths) times the bytes of an element, so that the number and
// the notation shown to the visitor come from one place and cannot drift apart.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "vramplan/element_type.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

enum class Component : std::uint8_t {
  // static: there before the first step and after each
  weights,
  frozen_weights,
  quantization_constants,
  adapters,
  buffers,
  gradients,
  master_weights,
  optimizer_states,
  cublas_workspace,
  // temporary: come and go within a step
  autocast_weights,
  gathered_parameters,
  checkpoints,
  activations_embedding,
  activations_norm,
  activations_attention,
  activations_mlp,
  activations_moe,
  activations_ssm,
  activations_adapter,
  activations_residual,
  logits,
  activation_gradients,
  working_memory,
  dequantized_weights,
  optimizer_temporaries,
  communication_buffers,
  kv_cache,
  // beyond what the framework allocated
  allocator_slack,
  cuda_context,
  nccl_buffers,
  inference_engine,
};
inline constexpr std::size_t kComponentCount = static_cast<std::size_t>(Component::inference_engine) + 1;

[[nodiscard]] constexpr bool is_static(Component c) { return c <= Component::cublas_workspace; }

// Bytes by component.
struct Composition {
  std::array<Bytes, kComponentCount> bytes{};
  constexpr Bytes& operator[](Component c) { return bytes[static_cast<std::size_t>(c)]; }
  constexpr const Bytes& operator[](Component c) const { return bytes[static_cast<std::size_t>(c)]; }
  constexpr Composition& operator+=(const Composition& other) {
    for (std::size_t i = 0; i < kComponentCount; ++i) bytes[i] += other.bytes[i];
    return *this;
  }
  [[nodiscard]] constexpr Bytes total() const {
    Bytes sum;
    for (const Bytes b : bytes) sum += b;
    return sum;
  }
};

// The symbols of the field. Widths are those of one rank, after the layout has cut them.
enum class Symbol : std::uint8_t {
  one,
  b,    // micro-batch, sequences
  s,    // sequence length, tokens
  sk,   // tokens of a sequence whose logits are asked for
  sc,   // tokens of the batch in one chunk of the loss
  h,    // hidden size
  a,    // attention heads
  ak,   // key-value heads
  q,    // query width: heads x head_dim
  kv,   // key width: kv heads x head_dim
  v,    // value width: kv heads x v_head_dim
  av,   // attention output width: heads x v_head_dim
  qkv,  // width of a fused q, k, v projection
  c,    // compressed KV width (latent attention)
  cq,   // compressed query width (latent attention)
  w,    // attention span of one query: s, or the window
  f,    // MLP width
  fe,   // width of one expert
  fs,   // width of the shared experts
  m,    // width that experts work on: hidden, or the latent size
  E,    // experts
  t,    // experts per token
  V,    // vocabulary rows
  r,    // adapter rank
  i,    // inner width of a recurrent layer (state space, linear attention): its values
  j,    // width of its input projection
  x,    // width of its convolution
  n,    // elements of its state
  nc,   // chunks in which it walks the sequence
  d,    // its heads, of which each has a decay of its own
  dk,   // its heads of keys, or groups of them
  k,    // width of its keys (B and C of a state space)
  ke,   // the same, copied for every head
  se,   // tokens of a sequence that one expert gets
  hp,   // hidden size between the matrices: with sequence parallelism a rank's tokens, counted as a part of the width
  er,   // experts that one rank holds
  sp,   // tokens of a sequence between the matrices: with sequence parallelism a rank's part
  sx,   // rows of a sequence that a rank sends to experts: its tokens, once for each expert
  sm,   // rows that its own experts get
  rt,   // of the adapter rank, what one of the ranks that share a matrix makes
  ht,   // of the hidden size, the same
};
inline constexpr std::size_t kSymbolCount = static_cast<std::size_t>(Symbol::ht) + 1;

struct SymbolTable {
  std::array<std::int64_t, kSymbolCount> value{};
  std::int64_t window = 0;               // the longest that w may be; 0: as long as the sequence
  std::int64_t chunk = 1;                // tokens in one chunk of a recurrent layer
  std::int64_t sequence_ranks = 1;       // that share a sequence (context parallelism): s is the part of one
  std::int64_t stream_ranks = 1;         // that share the tokens between the matrices
  std::int64_t expert_tensor_ranks = 1;  // that cut each expert
  // Per thousand: rows of the busiest rank, of the average; rows that an expert takes, of its fair share (0: all).
  std::int64_t imbalance = 1000, capacity = 0;
  constexpr std::int64_t& operator[](Symbol s) { return value[static_cast<std::size_t>(s)]; }
  constexpr std::int64_t operator[](Symbol s) const { return value[static_cast<std::size_t>(s)]; }
};

struct Size {
  std::array<Symbol, 4> symbols{Symbol::one, Symbol::one, Symbol::one, Symbol::one};
  std::int32_t multiplier = 1;
  ElementType type = ElementType::bf16;
  std::int32_t divisor = 1;  // divides multiplier x bytes of an element

  friend constexpr bool operator==(const Size&, const Size&) = default;
  [[nodiscard]] constexpr Size as(ElementType t) const {
    Size other = *this;
    other.type = t;
    return other;
  }
  [[nodiscard]] constexpr Size times(std::int32_t n) const {
    Size other = *this;
    other.multiplier *= n;
    return other;
  }
  // Half of it, in bytes: rotary positions turn half a head at a time.
  [[nodiscard]] constexpr Size halved() const {
    Size other = *this;
    other.divisor *= 2;
    return other;
  }
};

// The part of a size that no symbol stands for.
[[nodiscard]] constexpr std::int64_t constant_bytes(const Size& size) {
  return bytes_per_element(size.type) * size.multiplier / size.divisor;
}

[[nodiscard]] constexpr Bytes bytes_of(const Size& size, const SymbolTable& table) {
  Bytes bytes(constant_bytes(size));
  for (const Symbol s : size.symbols) {
    if (s != Symbol::one) bytes = bytes * table[s];
  }
  return bytes;
}

// Batch and length change from one question to the next; widths do not. So bytes are kept as a polynomial of these
// products, and a block is walked once for all batches and lengths.
enum class Product : std::uint8_t { one, b, s, sk, bs, bsk, sc, bsw, bss, ss, bnc, bse, bsp, bsx, bsm };
inline constexpr std::size_t kProductCount = static_cast<std::size_t>(Product::bsm) + 1;

// The values of the products for one batch and length.
struct ProductTable {
  std::array<std::int64_t, kProductCount> value{};
};
[[nodiscard]] constexpr ProductTable products_of(const SymbolTable& t) {
  const std::int64_t b = t[Symbol::b];
  const std::int64_t s = t[Symbol::s];
  const std::int64_t bs = saturating_multiply(b, s);
  return {{1, b, s, t[Symbol::sk], bs, saturating_multiply(b, t[Symbol::sk]), t[Symbol::sc],
           saturating_multiply(bs, t[Symbol::w]), saturating_multiply(bs, s), saturating_multiply(s, s),
           saturating_multiply(b, t[Symbol::nc]), saturating_multiply(b, t[Symbol::se]),
           saturating_multiply(b, t[Symbol::sp]), saturating_multiply(b, t[Symbol::sx]),
           saturating_multiply(b, t[Symbol::sm])}};
}

struct Polynomial {
  std::array<std::int64_t, kProductCount> coefficient{};

  friend constexpr bool operator==(const Polynomial&, const Polynomial&) = default;
  constexpr Polynomial& operator+=(const Polynomial& other) {
    for (std::size_t i = 0; i < kProductCount; ++i) coefficient[i] += other.coefficient[i];
    return *this;
  }
  constexpr Polynomial& operator-=(const Polynomial& other) {
    for (std::size_t i = 0; i < kProductCount; ++i) coefficient[i] -= other.coefficient[i];
    return *this;
  }
  friend constexpr Polynomial operator*(Polynomial a, std::int64_t n) {
    for (std::int64_t& c : a.coefficient) c = saturating_multiply(c, n);
    return a;
  }
  friend constexpr Polynomial operator+(Polynomial a, const Polynomial& b) { return a += b; }
  // Never more than the other, whatever batch and length are.
  [[nodiscard]] constexpr bool at_most(const Polynomial& other) const {
    for (std::size_t i = 0; i < kProductCount; ++i) {
      if (coefficient[i] > other.coefficient[i]) return false;
    }
    return true;
  }
};

// The terms that a polynomial has, of a dozen two or three: to be evaluated again and again.
class Terms {
 public:
  constexpr Terms() = default;
  constexpr Terms(const Polynomial& p) {
    for (std::size_t i = 0; i < kProductCount; ++i) {
      if (p.coefficient[i] != 0) terms_[count_++] = {p.coefficient[i], static_cast<Product>(i)};
    }
  }
  [[nodiscard]] constexpr Bytes at(const ProductTable& products) const {
    Bytes sum;
    for (std::size_t i = 0; i < count_; ++i) {
      sum += Bytes(products.value[static_cast<std::size_t>(terms_[i].product)]) * terms_[i].coefficient;
    }
    return sum;
  }

 private:
  struct Term {
    std::int64_t coefficient = 0;
    Product product = Product::one;
  };
  std::array<Term, kProductCount> terms_{};
  std::size_t count_ = 0;
};

// The bytes of a size as a polynomial; nothing when batch and length occur in a product that Product lacks.
// A coefficient ends at 2^52: far more than any GPU holds, and sums of a few hundred of them stay whole numbers.
[[nodiscard]] std::optional<Polynomial> polynomial_of(const Size& size, const SymbolTable& widths);

// Part of a component, with the factors that make it: count x multiplier x ceil(product of factors / divisor). The
// planner adds the bytes; the report writes the same factors as a notation.
struct Factor {
  std::string_view name;
  std::int64_t value = 1;
};
struct Contribution {
  static constexpr std::size_t kMaxFactors = 5;
  Component component = Component::working_memory;
  std::int64_t multiplier = 1;
  std::array<Factor, kMaxFactors> factors{};
  std::uint8_t factor_count = 0;
  std::int64_t divisor = 1;  // ranks that share it
  std::int64_t count = 1;    // equal ones of it: layers

  constexpr Contribution() = default;
  constexpr Contribution(Component c, std::int64_t bytes_each, std::initializer_list<Factor> list,
                         std::int64_t shared_by = 1, std::int64_t equal_ones = 1)
      : component(c), multiplier(bytes_each), divisor(shared_by), count(equal_ones) {
    for (const Factor& f : list) {
      if (factor_count < kMaxFactors) factors[factor_count++] = f;
    }
  }
  [[nodiscard]] constexpr Bytes bytes() const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < factor_count; ++i) product = saturating_multiply(product, factors[i].value);
    if (divisor > 1) product = divide_up(product, divisor);
    return Bytes(saturating_multiply(saturating_multiply(count, multiplier), product));
  }
};

// A list of them; or only their sum, which is all that a search asks for.
class Contributions {
 public:
  enum class Keeps : bool { sum, items };
  explicit Contributions(Keeps keeps = Keeps::items) : keeps_(keeps) {}
  void add(const Contribution& c) {
    if (c.multiplier == 0) return;
    total_ += c.bytes();
    if (keeps_ == Keeps::items) items_.push_back(c);
  }
  [[nodiscard]] const Contribution* begin() const { return items_.data(); }
  [[nodiscard]] const Contribution* end() const { return items_.data() + items_.size(); }
  [[nodiscard]] Bytes total() const { return total_; }

 private:
  Keeps keeps_;
  Bytes total_;
  std::vector<Contribution> items_;
};

}  // namespace vramplan
