// Prometheus text of everything the core counts. Protocols add what they count themselves.
#ifndef HARDTACK_SERVER_CORE_METRICS_H
#define HARDTACK_SERVER_CORE_METRICS_H

#include <cstdint>
#include <string>
#include <string_view>

#include "server/core/log.h"
#include "server/core/repository.h"

namespace hardtack::serve {

/// Appends "# HELP", "# TYPE" and samples to a page in the text format 0.0.4.
class MetricsPage {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help);
  /// `labels` is empty or `a="b",c="d"`, made with label().
  void sample(std::string_view name, std::string_view labels, double value);
  void sample(std::string_view name, std::string_view labels, std::uint64_t value);
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// `name="value"` with the value escaped.
std::string label(std::string_view name, std::string_view value);

/// Models, requests, durations, queues, logs, memory of the process.
void write_core_metrics(MetricsPage& page, const Repository& repository, const Log& log);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_METRICS_H
