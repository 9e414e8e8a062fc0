// The torch.distributed backend "muster": turns calls of c10d into calls of the muster module.
//
// It is compiled against the user's torch at its first use (muster/_shim.py) and linked with nothing of muster: the
// module hands it a table of functions in a capsule. Which bytes go where is decided in operation.hpp; how they are
// moved, compared and judged is not decided here at all.

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "work.hpp"

namespace {

// ---- The backend ----

template <class O>
auto is_async(const O& opts, int) -> decltype(bool(opts.asyncOp)) {
  return opts.asyncOp;
}

template <class O>
bool is_async(const O&, long) {
  return true;
}

// Options have a name of the group from torch 2.8 on.
template <class O>
auto name_of(const O& opts, int) -> decltype(std::string(opts.group_name)) {
  return opts.group_name;
}

template <class O>
std::string name_of(const O&, long) {
  return {};
}

using Reference = c10::intrusive_ptr<c10d::Work>;
using c10d::OpType;

// Whether torch's Python functions accept a synchronous call that gives no work: 2.9 does, 2.6 does not, and none between
// was tried.
constexpr bool kMayGiveNone = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9;

class MusterBackend : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
    c10::intrusive_ptr<c10d::Backend::Options> clone() const { return c10::make_intrusive<Options>(*this); }
  };

  MusterBackend(Group* group, int rank, int size, std::chrono::milliseconds timeout, std::string name,
                std::string group_name, bool is_root)
      : Backend(rank, size), group_(group), timeout_(timeout), name_(std::move(name)),
        group_name_(std::move(group_name)), is_root_(is_root) {
    options_ = c10::make_intrusive<Options>(name_, timeout);
  }

  ~MusterBackend() override { table->release(group_); }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return seq_; }
  bool supportsCoalescing() const { return true; }
  bool supportsSplitting() const { return true; }
  void shutdown() { if (is_root_) table->leave(group_); }
  void abort() { table->cancel(group_, "abort() was called"); }

  void startCoalescing() override { coalescing_ = true; coalesced_.clear(); }

  Reference endCoalescing() override {
    coalescing_ = false;
    return c10::make_intrusive<AllWork>(rank_, std::move(coalesced_));
  }

  Reference broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    Operation op;
    auto buffer = op.inout(one(tensors));
    op.add(Broadcast, nullptr, &buffer, opts.rootRank);
    op.outputs = tensors;
    return begin(std::move(op), OpType::BROADCAST, "broadcast", tensors, opts);
  }

  Reference allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return reduce_all(tensors, opts, OpType::ALLREDUCE, "all_reduce");
  }

  Reference allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return reduce_all(tensors, opts, OpType::ALLREDUCE_COALESCED, "all_reduce");
  }

  // Each rank's indices and values go to all, and every rank adds them up.
  Reference allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    const auto tensor = one(tensors).coalesce();
    if (opts.reduceOp.op_ != c10d::ReduceOp::SUM) unsupported("reductions of sparse tensors but for the sum");
    const auto indices = tensor.indices().t().contiguous(), values = tensor.values().contiguous();
    const auto rows = at::full({1}, values.size(0), at::kLong), all_rows = at::empty({size_}, at::kLong);
    Operation first;
    first.add(AllGather, &rows, &all_rows).site = call_site();
    if (auto* error = table->run(group_, first.calls.data(), 1, timeout_.count())) {
      std::rethrow_exception(exception_of(error));
    }
    const auto total = all_rows.sum().item<int64_t>();
    auto shape = values.sizes().vec();
    shape[0] = total;
    const auto all_indices = at::empty({total, indices.size(1)}, indices.options());
    const auto all_values = at::empty(shape, values.options());
    Operation op;
    for (const auto& [in, out] : {std::pair(indices, all_indices), std::pair(values, all_values)}) {
      op.kept.insert(op.kept.end(), {in, out});
      Counts counts;
      const uint64_t row = (in.dim() > 1 ? c10::multiply_integers(in.sizes().slice(1)) : 1) * type_of(in).factor;
      for (int rank = 0; rank < size_; rank++) counts.push_back(all_rows[rank].item<int64_t>() * row);
      auto& call = op.add(AllGatherV, &in, &out);
      call.lists = 1;
      call.counts = op.list(std::move(counts));
    }
    op.last = [target = tensors[0], all_indices, all_values]() mutable {
      target.copy_(at::sparse_coo_tensor(all_indices.t(), all_values, target.sizes()).coalesce());
    };
    op.outputs = tensors;
    return begin(std::move(op), OpType::_ALLREDUCE_SPARSE, "all_reduce", tensors, opts);
  }

  Reference reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    Operation op;
    const auto how = reduction(opts.reduceOp, one(tensors));
    const auto in = op.input(scaled(opts.reduceOp, tensors[0]));
    const auto is_root = opts.rootRank == rank_;
    Tensor out;
    if (is_root) out = in.is_same(tensors[0]) ? in : op.output(tensors[0]);
    op.add(Reduce, &in, is_root ? &out : nullptr, opts.rootRank, how);
    op.outputs = tensors;
    return begin(std::move(op), OpType::REDUCE, "reduce", tensors, opts);
  }

  Reference allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    Operation op;
    gather_all(op, one(outputs), one(inputs));
    op.outputs = outputs[0];
    return begin(std::move(op), OpType::ALLGATHER, "all_gather", inputs, opts);
  }

  Reference allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    Operation op;
    TORCH_CHECK_VALUE(outputs.size() == size_t(size_), "one list of outputs for each rank is wanted");
    for (size_t at = 0; at < inputs.size(); at++) {
      Tensors blocks;
      for (auto& list : outputs) {
        TORCH_CHECK_VALUE(list.size() == inputs.size(), "as many outputs of each rank as inputs are wanted");
        blocks.push_back(list[at]);
      }
      gather_all(op, blocks, inputs[at]);
    }
    for (auto& list : outputs) op.outputs.insert(op.outputs.end(), list.begin(), list.end());
    return begin(std::move(op), OpType::ALLGATHER_COALESCED, "all_gather", inputs, opts);
  }

  Reference _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override {
    Tensors outputs{output}, inputs{input};
    return gather_singles(outputs, inputs, opts, OpType::_ALLGATHER_BASE);
  }

  Reference allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return gather_singles(outputs, inputs, opts, OpType::COALESCED);
  }

  Reference gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    Operation op;
    const auto in = op.input(one(inputs));
    Tensor all;
    if (opts.rootRank == rank_) {
      TORCH_CHECK_VALUE(one(outputs).size() == size_t(size_) && equal_sizes(outputs[0], in.numel()),
                        "gather needs an output of the input's size for each rank");
      all = op.flat(outputs[0], false, true);
      op.outputs = outputs[0];
    }
    op.add(Gather, &in, all.defined() ? &all : nullptr, opts.rootRank);
    return begin(std::move(op), OpType::GATHER, "gather", inputs, opts);
  }

  Reference gather_into_tensor(Tensor& output, Tensor& input, const c10d::GatherOptions& opts) {
    Operation op;
    const auto in = op.input(input);
    Tensor all;
    if (opts.rootRank == rank_) all = op.output(output);
    op.add(Gather, &in, all.defined() ? &all : nullptr, opts.rootRank);
    if (all.defined()) op.outputs = {output};
    return begin(std::move(op), OpType::GATHER, "gather", {input}, opts);
  }

  Reference scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    Operation op;
    const auto out = op.output(one(outputs));
    Tensor all;
    if (opts.rootRank == rank_) {
      TORCH_CHECK_VALUE(one(inputs).size() == size_t(size_) && equal_sizes(inputs[0], out.numel()),
                        "scatter needs an input of the output's size for each rank");
      all = op.flat(inputs[0], true, false);
    }
    op.add(Scatter, all.defined() ? &all : nullptr, &out, opts.rootRank).count = out.numel() * type_of(out).factor;
    op.outputs = outputs;
    return begin(std::move(op), OpType::SCATTER, "scatter", inputs.empty() ? Tensors{} : inputs[0], opts);
  }

  Reference reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    Operation op;
    TORCH_CHECK_VALUE(one(inputs).size() == size_t(size_), "reduce_scatter needs an input for each rank");
    const auto out = op.output(one(outputs));
    const auto how = reduction(opts.reduceOp, out);
    const auto all = scaled(opts.reduceOp, op.flat(inputs[0], true, false));
    op.kept.push_back(all);
    if (equal_sizes(inputs[0], out.numel())) {
      op.add(ReduceScatter, &all, &out, 0, how).count /= size_;
    } else {
      auto& call = op.add(ReduceScatterV, &all, &out, 0, how);
      call.lists = 1;
      call.counts = op.list(numels(inputs[0]));
    }
    op.outputs = outputs;
    return begin(std::move(op), OpType::REDUCE_SCATTER, "reduce_scatter", inputs[0], opts);
  }

  Reference _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_singles(outputs, inputs, opts, OpType::_REDUCE_SCATTER_BASE);
  }

  Reference reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override {
    return reduce_scatter_singles(outputs, inputs, opts, OpType::COALESCED);
  }

  Reference alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                          std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override {
    Operation op;
    const auto in = op.input(input), out = op.output(output);
    auto& call = op.add(AllToAllV, &in, &out);
    call.lists = 2;
    call.counts = op.list(splits(in, input_splits));
    call.recv_counts = op.list(splits(out, output_splits));
    op.outputs = {output};
    return begin(std::move(op), OpType::ALLTOALL_BASE, "all_to_all", {input}, opts);
  }

  Reference alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    Operation op;
    TORCH_CHECK_VALUE(outputs.size() == size_t(size_) && inputs.size() == size_t(size_),
                      "all_to_all needs an input and an output for each rank");
    const auto in = op.flat(inputs, true, false), out = op.flat(outputs, false, true);
    auto& call = op.add(AllToAllV, &in, &out);
    call.lists = 2;
    call.counts = op.list(numels(inputs));
    call.recv_counts = op.list(numels(outputs));
    op.outputs = outputs;
    return begin(std::move(op), OpType::ALLTOALL, "all_to_all", inputs, opts);
  }

  Reference barrier(const c10d::BarrierOptions& opts) override {
    Operation op;
    op.add(Barrier, nullptr, nullptr);
    return begin(std::move(op), OpType::BARRIER, "barrier", {}, opts);
  }

  // On a group of its own, so that a rank that does not come costs only this barrier.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool /* all ranks are named in any case */) override {
    const auto timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_ : opts.timeout;
    TORCH_CHECK(timeout.count() > 0, "Rank ", rank_, " timed out in monitoredBarrier after 0 ms");
    Counts all(size_);
    for (int rank = 0; rank < size_; rank++) all[rank] = rank;
    Error* error = nullptr;
    const auto name = "monitored barrier " + std::to_string(++monitored_) + " of " + group_name_;
    Group* group = table->part(group_, name.c_str(), all.data(), all.size(), &error);
    Operation op;
    op.add(Barrier, nullptr, nullptr).site = call_site();
    if (group) {
      error = table->run(group, op.calls.data(), 1, timeout.count());
      table->release(group);
    }
    if (!error) return;
    const auto text = take_text(error);
    if (rank_ == 0) {
      C10_THROW_ERROR(DistBackendError, failed_ranks(text) + " failed to pass monitoredBarrier in " +
                                            std::to_string(timeout.count()) + " ms\n" + text);
    }
    C10_THROW_ERROR(DistBackendError, "Rank " + std::to_string(rank_) +
                                          " successfully reached monitoredBarrier, but received errors while waiting "
                                          "for send/recv from rank 0\n" + text);
  }

  Reference send(Tensors& tensors, int target, int tag) override {
    Operation op;
    const auto in = op.input(one(tensors));
    op.add(Send, &in, nullptr, target).tag = tag;
    return start(std::move(op), OpType::SEND, "send", tensors, timeout_);
  }

  Reference recv(Tensors& tensors, int source, int tag) override {
    Operation op;
    const auto out = op.output(one(tensors));
    op.add(Recv, nullptr, &out, source).tag = tag;
    auto work = start(std::move(op), OpType::RECV, "recv", tensors, timeout_);
    work->source_ = source;
    return work;
  }

  Reference recvAnysource(Tensors& tensors, int tag) override {
    Operation op;
    const auto out = op.output(one(tensors));
    op.source = std::make_shared<uint64_t>(0);
    auto& call = op.add(RecvAny, nullptr, &out);
    call.tag = tag;
    call.source = op.source.get();
    return start(std::move(op), OpType::RECVANYSOURCE, "recvAnySource", tensors, timeout_);
  }

  // A rank of the parent that is not among them gets nothing.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& /* the parent's world has all that is needed */,
      const std::vector<int>& ranks, const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
    const auto me = std::find(ranks.begin(), ranks.end(), rank_);
    if (me == ranks.end()) return nullptr;
    auto name = name_of(*opts, 0);
    if (name.empty()) name = "split " + std::to_string(++splits_) + " of " + group_name_;
    const Counts members(ranks.begin(), ranks.end());
    Error* error = nullptr;
    Group* group = table->part(group_, name.c_str(), members.data(), members.size(), &error);
    if (error) std::rethrow_exception(exception_of(error));
    return c10::make_intrusive<MusterBackend>(
        group, int(me - ranks.begin()), int(ranks.size()), opts->timeout, name_, name, false);
  }

 private:
  template <class T>
  static const T& one(const std::vector<T>& list) {
    TORCH_CHECK_VALUE(list.size() == 1, "one tensor for each rank is wanted, not ", list.size());
    return list[0];
  }

  Counts splits(const Tensor& tensor, const std::vector<int64_t>& sizes) const {
    const auto rows = tensor.dim() ? tensor.size(0) : tensor.numel();
    const uint64_t row = rows ? tensor.numel() / rows * type_of(tensor).factor : 0;
    if (sizes.empty()) {
      TORCH_CHECK_VALUE(rows % size_ == 0, "dimension 0 of ", rows, " is no multiple of the group's ", size_, " ranks");
      return Counts(size_, rows / size_ * row);
    }
    TORCH_CHECK_VALUE(sizes.size() == size_t(size_), "one split for each rank is wanted");
    Counts counts;
    int64_t sum = 0;
    for (auto size : sizes) {
      TORCH_CHECK_VALUE(size >= 0, "a split is negative");
      counts.push_back(size * row);
      sum += size;
    }
    TORCH_CHECK_VALUE(sum == rows, "splits add up to ", sum, ", and dimension 0 is ", rows);
    return counts;
  }

  Reference reduce_all(Tensors& tensors, const c10d::AllreduceOptions& opts, OpType type, const char* title) {
    Operation op;
    for (auto& tensor : tensors) {
      if (tensor.layout() == at::kSparse) return allreduce_sparse(tensors, opts);
      const auto how = reduction(opts.reduceOp, tensor);
      const auto in = op.input(scaled(opts.reduceOp, tensor));
      const auto out = in.is_same(tensor) ? in : op.output(tensor);
      op.add(AllReduce, &in, &out, 0, how);
    }
    op.outputs = tensors;
    return begin(std::move(op), type, title, tensors, opts);
  }

  void gather_all(Operation& op, const Tensors& outputs, const Tensor& input) {
    TORCH_CHECK_VALUE(outputs.size() == size_t(size_), "all_gather needs an output for each rank");
    const auto in = op.input(input);
    const auto all = op.flat(outputs, false, true);
    auto& call = op.add(equal_sizes(outputs, in.numel()) ? AllGather : AllGatherV, &in, &all);
    if (call.collective == AllGatherV) {
      call.lists = 1;
      call.counts = op.list(numels(outputs));
    }
  }

  Reference gather_singles(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts, OpType type) {
    Operation op;
    for (size_t at = 0; at < inputs.size(); at++) {
      const auto in = op.input(inputs[at]), out = op.output(outputs.at(at));
      op.add(AllGather, &in, &out);
    }
    op.outputs = outputs;
    return begin(std::move(op), type, "all_gather", inputs, opts);
  }

  Reference reduce_scatter_singles(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts, OpType type) {
    Operation op;
    for (size_t at = 0; at < inputs.size(); at++) {
      const auto how = reduction(opts.reduceOp, inputs[at]);
      const auto in = op.input(scaled(opts.reduceOp, inputs[at])), out = op.output(outputs.at(at));
      op.add(ReduceScatter, &in, &out, 0, how).count /= size_;
    }
    op.outputs = outputs;
    return begin(std::move(op), type, "reduce_scatter", inputs, opts);
  }

  std::string failed_ranks(const std::string& text) const {
    // "who=rank 1 (host, pid 7), rank 2 (host, pid 8) what=" or "who=ranks 1,2 what=".
    const auto from = text.find(" who=rank"), to = text.find(" (", from), end = text.find(" what=", from);
    if (from == std::string::npos || end == std::string::npos) return "A rank";
    return "R" + text.substr(from + 6, std::min(to, end) - from - 6);
  }

  template <class O>
  Reference begin(Operation op, OpType type, const char* title, const Tensors& inputs, const O& opts) {
    const auto timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_ : opts.timeout;
    if (is_async(opts, 0) || coalescing_) return start(std::move(op), type, title, inputs, timeout);
    // A profiler times a call by its work.
    if (kMayGiveNone && !at::hasCallbacks()) {
      prepare(op);
      auto* error = table->run(group_, op.calls.data(), op.calls.size(), timeout.count());
      if (error) std::rethrow_exception(exception_of(error));
      op.finish();
      return nullptr;
    }
    auto work = make(std::move(op), type, title, inputs, timeout);
    auto& calls = work->operation_.calls;
    work->end(table->run(group_, calls.data(), calls.size(), timeout.count()));
    return work;
  }

  c10::intrusive_ptr<MusterWork> start(
      Operation op, OpType type, const char* title, const Tensors& inputs, std::chrono::milliseconds timeout) {
    auto work = make(std::move(op), type, title, inputs, timeout);
    if (coalescing_) coalesced_.push_back(work);
    work->belongs_to(c10::intrusive_ptr<c10d::Backend>::unsafe_reclaim_from_nonowning(this), group_);
    auto& calls = work->operation_.calls;
    auto held = work;
    table->start(group_, calls.data(), calls.size(), timeout.count(), MusterWork::done, held.release());
    return work;
  }

  // Says where the calls are made, and gives their number.
  uint64_t prepare(Operation& op) {
    MusterWork::sweep();
    const auto* site = call_site();
    for (auto& call : op.calls) call.site = site;
    return ++seq_;
  }

  c10::intrusive_ptr<MusterWork> make(
      Operation op, OpType type, const char* title, const Tensors& inputs, std::chrono::milliseconds timeout) {
    const auto seq = prepare(op);
    if (!at::hasCallbacks()) return c10::make_intrusive<MusterWork>(rank_, type, std::move(op), timeout, seq);
    return c10::make_intrusive<MusterWork>(rank_, type, name_ + ":" + title, inputs, std::move(op), timeout, seq);
  }

  Group* group_;
  std::chrono::milliseconds timeout_;
  std::string name_;
  std::string group_name_;
  bool is_root_;
  c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> seq_{0};
  uint64_t monitored_ = 0;
  uint64_t splits_ = 0;
  std::atomic<bool> coalescing_{false};
  std::vector<Reference> coalesced_;
};

c10::intrusive_ptr<c10d::Backend> create(
    py::capsule capsule, uintptr_t group, int rank, int size, int64_t timeout_ms, std::string name,
    std::string group_name, bool is_root) {
  const auto* given = *static_cast<const Table* const*>(capsule.get_pointer());
  TORCH_CHECK(given->version == kVersion, "the muster module has table ", given->version, ", this backend wants ", kVersion);
  table = given;
  return c10::make_intrusive<MusterBackend>(
      reinterpret_cast<Group*>(group), rank, size, std::chrono::milliseconds(timeout_ms), std::move(name),
      std::move(group_name), is_root);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("create", &create);
  module.def("is_muster", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    return dynamic_cast<MusterBackend*>(backend.get()) != nullptr;
  });
}
