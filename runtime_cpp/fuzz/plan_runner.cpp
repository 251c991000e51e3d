#include "plan_runner.h"

#include <cstdlib>
#include <map>
#include <random>

#include "binding.h"
#include "cpu_queue.h"
#include "interpreter.h"
#include "plan_contract.h"
#include "plan_shadow.h"

namespace hardtack::fuzz {
namespace {

using namespace rt;

constexpr int64_t kMaxNbytes = 1 << 16;     // of all memory of a run
constexpr uint64_t kMaxElements = 1 << 14;  // that its kernels access
constexpr int kMaxSteps = 128;              // a loop may have no end
constexpr int32_t kNumWorkers = 3;

[[noreturn]] void unused() { std::abort(); }

// Where constants lie, and that tensors lie on the host; nobody asks it for more.
class Constants : public Device {
 public:
  explicit Constants(const std::vector<void*>& constants) : constants_(constants) {}
  const void* constant(size_t constant) const override { return constants_[constant]; }
  ht_device dl_device() const override {
    ht_device host = {};
    host.device_type = static_cast<decltype(host.device_type)>(1);
    return host;
  }
  bool reaches(const ht_device& device) const override { return is_host(device); }
  int64_t memory_alignment() const override { unused(); }
  Status add_program(const Program&) override { unused(); }
  Status open_queue(const QueueOptions&, std::unique_ptr<Queue>*) const override { unused(); }
  Status allocate(size_t, void**) const override { unused(); }
  void release(void*) const override { unused(); }

 private:
  const std::vector<void*>& constants_;
};

class Run;
Run* current = nullptr;  // kernels are given their arguments alone
uint32_t launched = 0;   // the launch whose kernel runs

class NumberedLaunches : public CpuLaunches {
 public:
  using CpuLaunches::CpuLaunches;
  Status run(uint32_t i, int32_t* code) override {
    launched = i;
    return CpuLaunches::run(i, code);
  }
};

class NumberedQueue : public CpuQueue {
 public:
  using CpuQueue::CpuQueue;
  Status prepare(size_t program, const std::vector<LaunchSite>& sites, std::unique_ptr<Launches>* launches) override {
    *launches = std::make_unique<NumberedLaunches>(kernels_[program], sites, &parallel_);
    return Status();
  }
};

class Run {
 public:
  Run(const Manifest& manifest, const Program& program) : manifest_(manifest), plan_(program.plan), program_(program) {
    for (const Step& step : program.steps) {
      if (step.op != StepOp::jump) instrs_[step.number] = step.instr;
    }
  }

  void run(const std::vector<int64_t>& syms) {
    if (!plan_.reads.empty()) return;  // a run would bind anew on its way, which is the session's part
    if (!Binding::create(program_, syms, &binding_).ok()) return;
    HtParallel parallel = {};
    parallel.nworkers = kNumWorkers;
    const CpuKernel kernel = {[](const HtKernelArgs* args) { return current->kernel(*args); }, {}};
    const std::vector<std::vector<CpuKernel>> kernels = {std::vector<CpuKernel>(plan_.kernels.size(), kernel)};
    NumberedQueue queue(kernels, parallel);
    if (!binding_->prepare(&queue, 0).ok() || !place()) return;
    const std::vector<void*> none;
    check_contract(manifest_, program_, *binding_, syms, pointers_, Constants(none), random_);
    shadow_ = std::make_unique<PlanShadow>(plan_, *binding_);
    current = this;
    const Observer observer = {
        [](void* self, const ht_step* step) -> int32_t { return static_cast<Run*>(self)->seen(*step); }, this, nullptr};
    bool wrote_states = false;
    if (interpret(program_, *binding_, &queue, observer, nullptr, &wrote_states).ok()) shadow_->check_outputs();
  }

  int32_t kernel(const HtKernelArgs& args) {
    const Instr& i = plan_.instrs[program_.launches[launched]];
    if (!shadow_->count(i, kMaxElements, &num_elements_)) return HT_KERNEL_ASSERT;
    for (const bool writes : {false, true}) {
      shadow_->each_access(i, [&](const Accessed& a) {
        char* at = static_cast<char*>(args.buffers[a.buffer]) + a.byte;
        if (writes ? a.writes : a.reads) touch(at, a.nbytes, writes);
      });
    }
    if (!i.has_grid) touch_workspaces(i, args);
    return HT_KERNEL_OK;
  }

 private:
  int32_t seen(const ht_step& step) {
    shadow_->step(plan_.instrs[instrs_.at(static_cast<uint32_t>(step.index))]);
    return ++num_steps_ < kMaxSteps ? 0 : 1;
  }

  void touch(char* at, int64_t nbytes, bool writes) {
    for (int64_t b = 0; b < nbytes; ++b) {
      if (writes)
        at[b] = static_cast<char>(random_() & 1);  // conditions are sometimes true, sometimes not
      else
        seen_ = static_cast<char>(seen_ ^ at[b]);
    }
  }

  void touch_workspaces(const Instr& i, const HtKernelArgs& args) {
    const int64_t shared = binding_->exprs()[i.shared], per_worker = binding_->exprs()[i.per_worker];
    if (shared > 0) touch(static_cast<char*>(args.shared_workspace), shared, true);
    for (int32_t w = 0; per_worker > 0 && w < args.parallel->nworkers; ++w)
      touch(static_cast<char*>(args.worker_workspace) + w * args.worker_stride, per_worker, true);
  }

  // Memory of just so many bytes, null where a run has enough.
  char* allocate(int64_t nbytes) {
    if (nbytes < 0 || nbytes > kMaxNbytes - total_nbytes_) return nullptr;
    total_nbytes_ += nbytes;
    blocks_.emplace_back(new char[static_cast<size_t>(nbytes)]);
    touch(blocks_.back().get(), nbytes, true);
    return blocks_.back().get();
  }

  bool place() {
    for (size_t i = 0; i < plan_.inputs.size() + plan_.outputs.size(); ++i) {
      const bool input = i < plan_.inputs.size();
      const size_t n = input ? i : i - plan_.inputs.size();
      char* data = allocate(input ? binding_->input(n).nbytes : binding_->output(n).nbytes);
      if (data == nullptr) return false;
      pointers_.push_back(data);
      input ? binding_->set_input(n, data) : binding_->set_output(n, data);
    }
    std::vector<void*> constants(manifest_.constants.size()), states(manifest_.states.size());
    for (const Value& v : plan_.values) {
      if (v.storage != Storage::constant && v.storage != Storage::state) continue;
      const bool constant = v.storage == Storage::constant;
      void*& at = (constant ? constants : states)[v.at];
      if (at == nullptr) at = allocate((constant ? manifest_.constants : manifest_.states)[v.at].nbytes);
      if (at == nullptr) return false;
    }
    char* arena = allocate(binding_->arena_nbytes());
    char* workspace = allocate(binding_->workspace_nbytes());
    if (arena == nullptr || workspace == nullptr) return false;
    binding_->place(Constants(constants), arena, workspace, states.data(), 1);
    return binding_->patch_slots().ok();
  }

  const Manifest& manifest_;
  const Plan& plan_;
  const Program& program_;
  std::map<uint32_t, uint32_t> instrs_;  // by the number that observers see
  std::unique_ptr<Binding> binding_;
  std::unique_ptr<PlanShadow> shadow_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<void*> pointers_;  // of inputs, then of outputs
  int64_t total_nbytes_ = 0;
  uint64_t num_elements_ = 0;
  int num_steps_ = 0;
  std::mt19937_64 random_;
  volatile char seen_ = 0;
};

}  // namespace

void run_program(const Manifest& manifest, const Program& program, const std::vector<int64_t>& syms) {
  Run(manifest, program).run(syms);
}

}  // namespace hardtack::fuzz
