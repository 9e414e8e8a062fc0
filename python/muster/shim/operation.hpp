// What an operation of c10d moves, in calls of the muster module's table: layouts, element types, reductions, buffers.
//
// It knows nothing of groups, works and futures.

#pragma once

#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/version.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Lists = std::vector<Tensors>;
using Counts = std::vector<uint64_t>;

// ---- The table, as python/src/table.rs has it ----

struct Call {
  uint8_t collective, dtype, op, lists;
  int32_t tag;
  uint64_t root, count;
  const void* send;
  uint64_t send_count;
  void* recv;
  uint64_t recv_count;
  const uint64_t* counts;
  const uint64_t* recv_counts;
  const void* site;
  // Where the index of the sender goes, for a message from any of them.
  uint64_t* source;
};

struct Group;
struct Error;

struct Table {
  uint64_t version;
  Error* (*run)(const Group*, const Call*, uint64_t, int64_t);
  void (*start)(const Group*, const Call*, uint64_t, int64_t, void (*)(void*, Error*), void*);
  Group* (*part)(const Group*, const char*, const uint64_t*, uint64_t, Error**);
  const void* (*site)(const void*, const char*, uint32_t);
  void (*awaits)(const Group*, uint32_t);
  void (*cancel)(const Group*, const char*);
  void (*leave)(const Group*);
  void (*release)(Group*);
  const char* (*error_text)(const Error*);
  const char* (*error_class)(const Error*);
  void (*error_free)(Error*);
};

constexpr uint64_t kVersion = 3;
constexpr uint64_t kNone = ~uint64_t{0};
const Table* table = nullptr;

// Numbers of muster-comm's collectives, element types and reductions.
enum : uint8_t {
  AllGather = 1, AllGatherV = 3, AllReduce = 4, AllToAllV = 6, Barrier = 7, Broadcast = 8, Gather = 10,
  Recv = 13, Reduce = 14, ReduceScatter = 15, ReduceScatterV = 16, Scatter = 17, Send = 20, RecvAny = 25
};
enum : uint8_t { Bf16 = 1, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64 };
enum : uint8_t { Avg = 1, Max, Min, Prod, Sum, BitAnd, BitOr, BitXor };

std::string take_text(Error* error) {
  std::string text = table->error_text(error);
  table->error_free(error);
  return text;
}

std::exception_ptr exception_of(Error* error) {
  auto text = take_text(error);
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)}, text));
}

[[noreturn]] void unsupported(const std::string& what) {
  C10_THROW_ERROR(NotImplementedError, "the backend muster does not carry " + what);
}

// ---- Element types and reductions ----

// How elements of a tensor travel: as `factor` elements of a type of muster's.
struct Type {
  uint8_t dtype;
  uint64_t factor;
};

Type type_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16: return {Bf16, 1};
    case at::kHalf: return {F16, 1};
    case at::kFloat: return {F32, 1};
    case at::kDouble: return {F64, 1};
    case at::kComplexFloat: return {F32, 2};
    case at::kComplexDouble: return {F64, 2};
    case at::kChar: return {I8, 1};
    case at::kShort: return {I16, 1};
    case at::kInt: return {I32, 1};
    case at::kLong: return {I64, 1};
    case at::ScalarType::UInt16: return {U16, 1};
    case at::ScalarType::UInt32: return {U32, 1};
    case at::ScalarType::UInt64: return {U64, 1};
    default: return {U8, uint64_t(tensor.element_size())};
  }
}

uint8_t reduction(const c10d::ReduceOp& op, const Tensor& tensor) {
  using R = c10d::ReduceOp;
  const auto type = tensor.scalar_type();
  if (type == at::kBool) {
    switch (op.op_) {
      case R::SUM: case R::MAX: case R::BOR: return Max;
      case R::PRODUCT: case R::MIN: case R::BAND: return Min;
      case R::BXOR: return BitXor;
      default: unsupported("this reduction of truth values");
    }
  }
  const auto is_number = at::isFloatingType(type) || at::isIntegralType(type, false) || at::isComplexType(type);
  if (!is_number || (type_of(tensor).dtype == U8 && type != at::kByte)) {
    unsupported(std::string("reductions of ") + c10::toString(type));
  }
  if (at::isComplexType(type) && op.op_ != R::SUM && op.op_ != R::AVG && op.op_ != R::PREMUL_SUM) {
    unsupported("reductions of complex numbers but for sum and avg");
  }
  const auto is_bitwise = op.op_ == R::BAND || op.op_ == R::BOR || op.op_ == R::BXOR;
  if (is_bitwise && !at::isIntegralType(type, false)) {
    unsupported(std::string("bitwise reductions of ") + c10::toString(type));
  }
  switch (op.op_) {
    case R::SUM: case R::PREMUL_SUM: return Sum;
    case R::AVG: return Avg;
    case R::PRODUCT: return Prod;
    case R::MIN: return Min;
    case R::MAX: return Max;
    case R::BAND: return BitAnd;
    case R::BOR: return BitOr;
    case R::BXOR: return BitXor;
    default: unsupported("this reduction");
  }
}

Tensor scaled(const c10d::ReduceOp& op, const Tensor& tensor) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return tensor;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  const auto* by = static_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
#else
  const auto* by = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
#endif
  return by->tensor_factor.defined() ? tensor * by->tensor_factor : tensor * by->double_factor;
}

// ---- An operation: its calls, and what is kept and done for them ----

struct Operation {
  std::vector<Call> calls;
  std::vector<std::shared_ptr<Counts>> counts;
  Tensors kept;
  Tensors outputs;
  // Copies of results to where they belong; made when the calls have ended.
  std::vector<std::pair<Tensor, Tensor>> copies;
  // What else is computed then.
  std::function<void()> last;
  // The sender of a message from any of them, once it has come.
  std::shared_ptr<uint64_t> source;

  static void check(const Tensor& tensor) {
    TORCH_CHECK_VALUE(tensor.device().is_cpu(), "muster carries tensors of the CPU, not of ", tensor.device());
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "muster carries dense tensors");
  }

  static bool is_plain(const Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  }

  Tensor input(const Tensor& tensor) {
    check(tensor);
    kept.push_back(is_plain(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous());
    return kept.back();
  }

  // A tensor that is read and written.
  Tensor inout(const Tensor& tensor) {
    auto plain = input(tensor);
    if (!plain.is_same(tensor)) copies.emplace_back(tensor, plain);
    return plain;
  }

  Tensor output(const Tensor& tensor) {
    check(tensor);
    kept.push_back(is_plain(tensor) ? tensor : at::empty(tensor.sizes(), tensor.options()));
    if (!is_plain(tensor)) copies.emplace_back(tensor, kept.back());
    return kept.back();
  }

  // Memory for these tensors one behind the other: their own where they lie so.
  Tensor flat(const Tensors& tensors, bool fill, bool copy_back) {
    TORCH_CHECK_VALUE(!tensors.empty(), "an empty list of tensors");
    int64_t total = 0;
    bool adjacent = true;
    const auto* next = static_cast<const char*>(tensors[0].data_ptr());
    for (const auto& tensor : tensors) {
      check(tensor);
      TORCH_CHECK_TYPE(tensor.scalar_type() == tensors[0].scalar_type(), "tensors of one call differ in type");
      adjacent = adjacent && is_plain(tensor) && tensor.data_ptr() == next;
      next += tensor.nbytes();
      total += tensor.numel();
      kept.push_back(tensor);
    }
    adjacent = adjacent && tensors[0].storage().nbytes() >=
        size_t(tensors[0].storage_offset() + total) * tensors[0].element_size();
    if (adjacent) return at::from_blob(tensors[0].data_ptr(), {total}, tensors[0].options().requires_grad(false));
    auto all = at::empty({total}, tensors[0].options().requires_grad(false));
    int64_t at = 0;
    for (const auto& tensor : tensors) {
      auto part = all.narrow(0, at, tensor.numel());
      at += tensor.numel();
      if (fill) part.copy_(tensor.reshape({-1}));
      if (copy_back) copies.emplace_back(tensor, part.view(tensor.sizes()));
    }
    kept.push_back(all);
    return all;
  }

  const uint64_t* list(Counts values) {
    counts.push_back(std::make_shared<Counts>(std::move(values)));
    return counts.back()->data();
  }

  Call& add(uint8_t collective, const Tensor* send, const Tensor* recv, uint64_t root = 0, uint8_t op = Sum) {
    const Tensor* one = send ? send : recv;
    const auto type = one ? type_of(*one) : Type{U8, 1};
    auto elements = [&](const Tensor* tensor) { return tensor ? tensor->numel() * type.factor : kNone; };
    if (send && recv) {
      TORCH_CHECK_TYPE(send->scalar_type() == recv->scalar_type(), "input and output differ in type");
    }
    calls.push_back(Call{
        collective, type.dtype, op, 0, 0, root, one ? elements(one) : 0,
        send ? send->data_ptr() : nullptr, elements(send),
        recv ? recv->data_ptr() : nullptr, elements(recv), nullptr, nullptr, nullptr, nullptr});
    return calls.back();
  }

  void finish() {
    at::NoGradGuard no_grad;
    if (last) last();
    for (auto& [to, from] : copies) to.copy_(from);
  }
};

Counts numels(const Tensors& tensors) {
  Counts counts;
  for (const auto& tensor : tensors) counts.push_back(tensor.numel() * type_of(tensor).factor);
  return counts;
}

bool equal_sizes(const Tensors& tensors, int64_t numel) {
  for (const auto& tensor : tensors) {
    if (tensor.numel() != numel) return false;
  }
  return true;
}

}  // namespace
