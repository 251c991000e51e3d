#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "commands.h"
#include "inputs.h"
#include "text.h"

namespace hardtack::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Timing {
  double first = 0, p10 = 0, median = 0, p90 = 0;
  size_t num_runs = 0;
};

double percentile(const std::vector<double>& sorted, double fraction) {
  return sorted[static_cast<size_t>(fraction * static_cast<double>(sorted.size() - 1) + 0.5)];
}

struct StepTimes {
  struct Row {
    std::string kernel, place;
    int64_t count = 0, total_ns = 0;
  };
  std::map<std::string, Row> rows;  // by kernel or op

  static int32_t observe(void* user, const ht_step* step) {
    StepTimes* self = static_cast<StepTimes*>(user);
    const std::string name = step->kernel == nullptr ? step->op : step->kernel;
    Row& row = self->rows[name];
    row.kernel = name;
    if (row.count == 0 && *step->file != '\0')
      row.place = std::string(step->file) + ":" + std::to_string(step->line) + " " + step->source_op;
    ++row.count;
    row.total_ns += step->duration_ns;
    return 0;
  }
};

class Bench {
 public:
  Bench(Loaded* loaded, const Inputs& inputs)
      : loaded_(*loaded), inputs_(inputs), entry_(*loaded->model.entry(loaded->entry)), outputs_(entry_.num_outputs) {}

  // Runs once; false with the error printed.
  bool once() {
    for (ht_tensor& output : outputs_) output = {};
    const Status status = loaded_.session.run(entry_.name, inputs_.tensors().data(), inputs_.tensors().size(),
                                              outputs_.data(), outputs_.size());
    return status.ok() || (bad(status.message()), false);
  }

  bool measure(double seconds, Timing* timing) {
    Clock::time_point start = Clock::now();
    if (!once()) return false;
    timing->first = seconds_since(start);
    const Clock::time_point warm_up = Clock::now();
    do {
      if (!once()) return false;
    } while (seconds_since(warm_up) < seconds / 10);
    std::vector<double> times;
    const Clock::time_point measured = Clock::now();
    while (times.size() < 5 || (seconds_since(measured) < seconds && times.size() < 1000000)) {
      start = Clock::now();
      if (!once()) return false;
      times.push_back(seconds_since(start));
    }
    std::sort(times.begin(), times.end());
    timing->p10 = percentile(times, 0.1);
    timing->median = percentile(times, 0.5);
    timing->p90 = percentile(times, 0.9);
    timing->num_runs = times.size();
    return true;
  }

  bool measure_steps(StepTimes* steps, int num_runs) {
    const Status set = loaded_.session.set_observer(&StepTimes::observe, steps);
    for (int i = 0; set.ok() && i < num_runs; ++i) {
      if (!once()) return false;
    }
    return set.ok() && loaded_.session.set_observer(nullptr, nullptr).ok();
  }

 private:
  Loaded& loaded_;
  const Inputs& inputs_;
  const ht_entry_info& entry_;
  std::vector<ht_tensor> outputs_;
};

uint64_t peak_rss_nbytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::vector<StepTimes::Row> slowest(const StepTimes& steps) {
  std::vector<StepTimes::Row> rows;
  for (const auto& [name, row] : steps.rows) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.total_ns > b.total_ns; });
  return rows;
}

void print_text(const Loaded& loaded, const Inputs& inputs, const Timing& t, const StepTimes& steps,
                int num_step_runs) {
  const ht_memory_info memory = loaded.session.memory();
  std::string sizes;
  for (const auto& [name, size] : inputs.sizes())
    sizes += (sizes.empty() ? "" : ", ") + name + " = " + std::to_string(size);
  std::vector<std::vector<std::string>> rows = {
      {"entry", loaded.model.entry(loaded.entry)->name, sizes.empty() ? "fixed sizes" : sizes},
      {"target", loaded.model.info().target, ""},
      {"load", time_text(loaded.load_seconds), ""},
      {"first run", time_text(t.first), ""},
      {"median", bold(time_text(t.median)), std::to_string(t.num_runs) + " runs"},
      {"p10", time_text(t.p10), ""},
      {"p90", time_text(t.p90), ""},
      {"arena", bytes_text(memory.arena_nbytes), "workspace " + bytes_text(memory.workspace_nbytes)},
      {"peak memory", bytes_text(peak_rss_nbytes()), "of the process"}};
  std::fputs(table(rows).c_str(), stdout);
  if (steps.rows.empty()) return;
  int64_t total = 0;
  for (const auto& [name, row] : steps.rows) total += row.total_ns;
  rows = {{"share", "a run", "launches", "kernel", "first place"}};
  for (const StepTimes::Row& row : slowest(steps)) {
    char share[16];
    std::snprintf(share, sizeof share, "%5.1f%%",
                  total == 0 ? 0.0 : 100.0 * static_cast<double>(row.total_ns) / static_cast<double>(total));
    rows.push_back({share, time_text(static_cast<double>(row.total_ns) * 1e-9 / num_step_runs),
                    std::to_string(row.count / num_step_runs), row.kernel, row.place});
  }
  std::printf("\n%s\n%s", bold("kernels").c_str(), table(rows).c_str());
}

void print_json(const Loaded& loaded, const Inputs& inputs, const Timing& t, const StepTimes& steps,
                int num_step_runs) {
  const ht_memory_info memory = loaded.session.memory();
  JsonWriter json;
  json.open('{')
      .key("entry")
      .text(loaded.model.entry(loaded.entry)->name)
      .key("target")
      .text(loaded.model.info().target);
  json.key("sizes").open('{');
  for (const auto& [name, size] : inputs.sizes()) json.key(name).number(size);
  json.close('}')
      .key("load_s")
      .real(loaded.load_seconds)
      .key("first_run_s")
      .real(t.first)
      .key("median_s")
      .real(t.median);
  json.key("p10_s").real(t.p10).key("p90_s").real(t.p90).key("runs").number(uint64_t{t.num_runs});
  json.key("arena_nbytes").number(memory.arena_nbytes).key("workspace_nbytes").number(memory.workspace_nbytes);
  json.key("peak_rss_nbytes").number(peak_rss_nbytes()).key("kernels").open('[');
  for (const StepTimes::Row& row : slowest(steps)) {
    json.open('{').key("kernel").text(row.kernel).key("launches").number(row.count / num_step_runs);
    json.key("seconds")
        .real(static_cast<double>(row.total_ns) * 1e-9 / num_step_runs)
        .key("place")
        .text(row.place)
        .close('}');
  }
  json.close(']').close('}');
  std::printf("%s\n", json.str().c_str());
}

}  // namespace

int bench(const Args& args) {
  constexpr int kStepRuns = 10;
  Loaded loaded;
  Inputs inputs;
  int exit_status = kGood;
  int64_t seconds = 2;
  std::string problem;
  if (!parse_number(args, "--seconds", 1, 3600, &seconds, &problem)) return wrong_use("bench: " + problem);
  if (!load(args, &loaded, &exit_status)) return exit_status;
  if (!inputs.build(args, loaded, true, &problem)) return wrong_use("bench: " + problem);
  Timing timing;
  StepTimes steps;
  Bench bench(&loaded, inputs);
  if (!bench.measure(static_cast<double>(seconds), &timing)) return kBad;
  if (args.has("--steps") && !bench.measure_steps(&steps, kStepRuns)) return kBad;
  if (args.has("--json"))
    print_json(loaded, inputs, timing, steps, kStepRuns);
  else
    print_text(loaded, inputs, timing, steps, kStepRuns);
  return kGood;
}

}  // namespace hardtack::tools
