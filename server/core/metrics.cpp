#include "server/core/metrics.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace hardtack::serve {

namespace {

struct Row {
  std::string labels;
  StatisticsSnapshot numbers;
};

double resident_nbytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

template <typename Get>
void each(MetricsPage& page, const std::vector<Row>& rows, const char* name, const char* type, const char* help,
          Get get) {
  page.family(name, type, help);
  for (const Row& row : rows) page.sample(name, row.labels, get(row.numbers));
}

double seconds(const Duration& duration) { return static_cast<double>(duration.ns) * 1e-9; }

void write_requests(MetricsPage& page, const std::vector<Row>& rows) {
  constexpr const char* kName = "hardtack_requests_total";
  page.family(kName, "counter", "Inference requests that were answered, by result.");
  for (const Row& row : rows) {
    page.sample(kName, row.labels + ",result=\"ok\"", row.numbers.success.count);
    for (std::size_t code = 0; code < kNumCodes; ++code) {
      const std::uint64_t count = row.numbers.fails_by_code[code];
      if (count > 0) page.sample(kName, row.labels + "," + label("result", code_name(static_cast<Code>(code))), count);
    }
  }
  page.family("hardtack_request_duration_seconds", "histogram",
              "From the arrival of a request to its result, requests answered well.");
  for (const Row& row : rows) {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < row.numbers.latency.size(); ++i) {
      char bound[32] = "+Inf";
      if (i < kLatencyBounds.size()) std::snprintf(bound, sizeof bound, "%g", kLatencyBounds[i]);
      below += row.numbers.latency[i];
      page.sample("hardtack_request_duration_seconds_bucket", row.labels + "," + label("le", bound), below);
    }
    page.sample("hardtack_request_duration_seconds_sum", row.labels, seconds(row.numbers.success));
    page.sample("hardtack_request_duration_seconds_count", row.labels, row.numbers.success.count);
  }
}

}  // namespace

void MetricsPage::family(std::string_view name, std::string_view type, std::string_view help) {
  ((((text_ += "# HELP ") += name) += ' ') += help) += '\n';
  ((((text_ += "# TYPE ") += name) += ' ') += type) += '\n';
}

void MetricsPage::sample(std::string_view name, std::string_view labels, double value) {
  char number[40];
  std::snprintf(number, sizeof number, " %.9g\n", value);
  text_ += name;
  if (!labels.empty()) ((text_ += '{') += labels) += '}';
  text_ += number;
}

void MetricsPage::sample(std::string_view name, std::string_view labels, std::uint64_t value) {
  text_ += name;
  if (!labels.empty()) ((text_ += '{') += labels) += '}';
  ((text_ += ' ') += std::to_string(value)) += '\n';
}

std::string label(std::string_view name, std::string_view value) {
  std::string text(name);
  text += "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text += '"';
}

void write_core_metrics(MetricsPage& page, const Repository& repository, const Log& log) {
  std::vector<Row> rows;
  for (const auto& version : repository.all()) {
    rows.push_back(
        {label("model", version->model()) + "," + label("version", version->version()), version->statistics()});
  }
  using S = const StatisticsSnapshot&;
  write_requests(page, rows);
  each(page, rows, "hardtack_inferences_total", "counter", "Rows answered well; a batch of 8 counts 8.",
       [](S s) { return s.inference_count; });
  each(page, rows, "hardtack_executions_total", "counter", "Runs of the model.", [](S s) { return s.execution_count; });
  each(page, rows, "hardtack_queue_seconds_total", "counter", "Time that requests waited for a session.",
       [](S s) { return seconds(s.queue); });
  each(page, rows, "hardtack_compute_seconds_total", "counter", "Time of requests in runs of the model.",
       [](S s) { return seconds(s.compute_infer); });
  each(page, rows, "hardtack_waiting_requests", "gauge", "Requests in the queue.", [](S s) { return s.waiting; });
  each(page, rows, "hardtack_waiting_clients", "gauge", "Clients that have requests in the queue.",
       [](S s) { return s.clients; });
  each(page, rows, "hardtack_running_requests", "gauge", "Requests that are being run.", [](S s) { return s.running; });
  each(page, rows, "hardtack_sequences", "gauge", "Sequences whose states are kept.", [](S s) { return s.sequences; });
  each(page, rows, "hardtack_stuck_runs", "gauge", "Runs that have not ended though their time is over.",
       [](S s) { return s.stuck; });
  page.family("hardtack_ready", "gauge", "1 when every model that is to be served has a ready version.");
  page.sample("hardtack_ready", "", std::uint64_t{repository.ready() ? 1U : 0U});
  const Repository::Counters counters = repository.counters();
  page.family("hardtack_model_loads_total", "counter", "Bundles that were loaded, by result.");
  page.sample("hardtack_model_loads_total", "result=\"ok\"", counters.loads);
  page.sample("hardtack_model_loads_total", "result=\"failed\"", counters.load_failures);
  page.family("hardtack_model_unloads_total", "counter", "Versions that were taken away.");
  page.sample("hardtack_model_unloads_total", "", counters.unloads);
  page.family("hardtack_log_lines_dropped_total", "counter", "Log lines that could not be written.");
  page.sample("hardtack_log_lines_dropped_total", "", log.dropped());
  page.family("hardtack_exceptions_total", "counter",
              "Exceptions that ended one connection, call or look at files; for want of memory, as a rule.");
  page.sample("hardtack_exceptions_total", "", log.exceptions());
  const Budget& budget = repository.budget();
  page.family("hardtack_memory_bytes", "gauge", "What counts towards --max-memory.");
  page.sample("hardtack_memory_bytes", "", budget.used());
  page.family("hardtack_memory_limit_bytes", "gauge", "The most that --max-memory lets it be.");
  page.sample("hardtack_memory_limit_bytes", "", budget.limit());
  page.family("hardtack_memory_refused_total", "counter", "Times that something did not fit into it.");
  page.sample("hardtack_memory_refused_total", "", budget.refused());
  page.family("process_resident_memory_bytes", "gauge", "Resident memory of the server.");
  page.sample("process_resident_memory_bytes", "", resident_nbytes());
}

}  // namespace hardtack::serve
