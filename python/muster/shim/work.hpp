// What c10d waits for: works, their futures, and the place in the Python program that a call comes from.

#pragma once

#include <Python.h>
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "operation.hpp"

namespace {

// ---- Work ----

class MusterWork : public c10d::Work {
 public:
  MusterWork(int rank, c10d::OpType type, Operation operation, std::chrono::milliseconds timeout, uint64_t seq)
      : Work(rank, type), operation_(std::move(operation)), timeout_(timeout), seq_(seq) {}

  // One that a profiler hears of.
  MusterWork(int rank, c10d::OpType type, const std::string& title, const Tensors& inputs, Operation operation,
             std::chrono::milliseconds timeout, uint64_t seq)
      : Work(rank, type, title.c_str(), inputs), operation_(std::move(operation)), timeout_(timeout), seq_(seq) {}

  // Called on a thread of muster. It hands the work on and frees nothing: to free a tensor that Python knows takes the GIL,
  // and a thread that waits for the GIL while the interpreter ends is ended by that, which aborts the process.
  static void done(void* data, Error* error) {
    auto work = c10::intrusive_ptr<MusterWork>::reclaim(static_cast<MusterWork*>(data));
    work->end(error);
    std::lock_guard<std::mutex> lock(over_mutex());
    over().push_back(std::move(work));
  }

  // Frees works that are over. Called by threads that make or await calls.
  static void sweep() {
    std::vector<c10::intrusive_ptr<MusterWork>> works;
    {
      std::lock_guard<std::mutex> lock(over_mutex());
      works.swap(over());
    }
  }

  // Whose call it is. The work does not keep the backend alive.
  void belongs_to(const c10::intrusive_ptr<c10d::Backend>& backend, const Group* group) {
    backend_.emplace(backend);
    group_ = group;
  }

  bool wait(std::chrono::milliseconds timeout) override {
    bool is_over = false;
    {
      const Awaited awaited(isCompleted() || !backend_ ? nullptr : backend_->lock(), group_);
      is_over = Work::wait(timeout);
    }
    Operation done_with;
    if (is_over) {
      std::lock_guard<std::mutex> lock(future_mutex_);
      std::swap(done_with, operation_);
    }
    sweep();
    return is_over;
  }

  void end(Error* error) {
    std::exception_ptr failure;
    if (error) {
      failure = exception_of(error);
    } else {
      try {
        operation_.finish();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    outputs_ = operation_.outputs;
    if (operation_.source) source_ = int(*operation_.source);
    finish(failure);
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
      std::lock_guard<std::mutex> lock(future_mutex_);
      ended_ = true;
      future = future_;
    }
    if (future) complete(*future);
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    bool complete_now = false;
    {
      std::lock_guard<std::mutex> lock(future_mutex_);
      if (!future_) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        complete_now = ended_;
      }
    }
    if (complete_now) complete(*future_);
    return future_;
  }

  Tensors result() override { return outputs_; }
  int sourceRank() const override { return source_; }
  uint64_t getSequencenumber() const override { return seq_; }
  std::chrono::milliseconds getTimeout() const { return timeout_; }

  Operation operation_;
  int source_ = -1;

 private:
  // Both live as long as the process: threads of muster may come here while it ends.
  static std::vector<c10::intrusive_ptr<MusterWork>>& over() {
    static auto* works = new std::vector<c10::intrusive_ptr<MusterWork>>();
    return *works;
  }
  static std::mutex& over_mutex() {
    static auto* mutex = new std::mutex();
    return *mutex;
  }

  // Verdicts know by it that this thread waits for the group's calls, and does not run the program.
  struct Awaited {
    Awaited(c10::intrusive_ptr<c10d::Backend> backend, const Group* group) : backend(std::move(backend)), group(group) {
      if (this->backend) table->awaits(group, 1);
    }
    ~Awaited() {
      if (backend) table->awaits(group, 0);
    }
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

    c10::intrusive_ptr<c10d::Backend> backend;
    const Group* group;
  };

  void complete(c10::ivalue::Future& future) {
    if (auto failure = exception()) {
      future.setError(failure);
    } else {
      future.markCompleted(c10::IValue(outputs_));
    }
  }

  std::chrono::milliseconds timeout_;
  uint64_t seq_;
  std::optional<c10::weak_intrusive_ptr<c10d::Backend>> backend_;
  const Group* group_ = nullptr;
  Tensors outputs_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool ended_ = false;
};

// Several works that one is to wait for.
class AllWork : public c10d::Work {
 public:
  AllWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isCompleted(); });
  }

  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isSuccess(); });
  }

  bool wait(std::chrono::milliseconds timeout) override {
    for (auto& work : works_) work->wait(timeout);
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    auto left = std::make_shared<std::atomic<size_t>>(works_.size());
    if (works_.empty()) future->markCompleted(c10::IValue(Tensors{}));
    for (auto& work : works_) {
      work->getFuture()->addCallback([future, left](c10::ivalue::Future& one) {
        if (one.hasError()) {
          future->setErrorIfNeeded(one.exception_ptr());
        } else if (left->fetch_sub(1) == 1) {
          future->markCompleted(c10::IValue(Tensors{}));
        }
      });
    }
    return future;
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

// ---- Where in the Python program a call is made ----

// A function of the program, by its code object. The object is kept, so that its address stands for it for ever.
struct Code {
  bool is_torch;
  std::string file;
  // Its places by instruction: to look one up costs less than to find the line.
  std::unordered_map<int, const void*> sites;
};

constexpr size_t kCodesMax = 4096;

// The folder of torch's own files, with a slash at its end. Needs the GIL.
const std::string& torch_folder() {
  static const auto* folder = new std::string(
      py::module_::import("torch").attr("__path__").cast<std::vector<std::string>>().at(0) + "/");
  return *folder;
}

// What is known of a code object; null where it cannot be remembered. Needs the GIL.
Code* known(PyCodeObject* code) {
  static auto* all = new std::unordered_map<PyCodeObject*, Code>();
  const auto found = all->find(code);
  if (found != all->end()) return &found->second;
  if (all->size() == kCodesMax) return nullptr;
  auto* name = PyObject_GetAttrString(reinterpret_cast<PyObject*>(code), "co_filename");
  const char* file = name ? PyUnicode_AsUTF8(name) : nullptr;
  const bool is_torch = !file || std::strncmp(file, torch_folder().c_str(), torch_folder().size()) == 0 ||
      std::strstr(file, "/contextlib.py");
  auto& made = all->emplace(code, Code{is_torch, file ? file : "", {}}).first->second;
  Py_INCREF(code);
  Py_XDECREF(name);
  PyErr_Clear();
  return &made;
}

// The place that a frame is at. Needs the GIL.
const void* site_of(PyCodeObject* code, Code& seen, PyFrameObject* frame) {
  auto at = [&] { return table->site(code, seen.file.c_str(), uint32_t(PyFrame_GetLineNumber(frame))); };
#if PY_VERSION_HEX >= 0x030b0000
  const auto [place, is_new] = seen.sites.try_emplace(PyFrame_GetLasti(frame), nullptr);
  if (is_new) place->second = at();
  return place->second;
#else
  return at();
#endif
}

// The innermost frame of the main thread that is not torch's own. Other threads call for autograd or for the user; they
// are not made to wait for the GIL.
const void* call_site() {
  static thread_local const bool is_main = getpid() == syscall(SYS_gettid);
  if (!is_main || !PyGILState_GetThisThreadState()) return nullptr;
  py::gil_scoped_acquire gil;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  const void* site = nullptr;
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    auto* seen = known(code);
    const bool is_torch = seen && seen->is_torch;
    if (seen && !is_torch) site = site_of(code, *seen, frame);
    Py_DECREF(code);
    PyFrameObject* back = is_torch ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  return site;
}

}  // namespace
