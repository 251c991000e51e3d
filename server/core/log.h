// Structured logs: one event a line, JSON or text, written by a thread of their own.
//
// Threads. Everything here is safe from any thread and never waits for the disk or the terminal: lines go into a bounded
// queue; when it is full, or the disk is, lines are dropped and counted, and a line says how many once writing works
// again. Serving never depends on logging.
#ifndef HARDTACK_SERVER_CORE_LOG_H
#define HARDTACK_SERVER_CORE_LOG_H

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "server/core/error.h"

namespace hardtack::serve {

enum class Level { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kJson, kText };

/// A named value of a line: text or a number.
struct Field {
  Field(std::string_view name_, std::string_view value) : name(name_), text(value) {}
  Field(std::string_view name_, const char* value) : name(name_), text(value) {}
  Field(std::string_view name_, const std::string& value) : name(name_), text(value) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Field(std::string_view name_, T value) : name(name_), number(static_cast<double>(value)), is_number(true) {}
  std::string_view name;
  std::string_view text;
  double number = 0;
  bool is_number = false;
};

/// When an event was last written that may come very often.
class Seldom {
 public:
  /// Whether it is ten seconds ago, or never was.
  bool is_due() noexcept;

 private:
  std::atomic<std::int64_t> next_{INT64_MIN};  // of the steady clock
};

class Log {
 public:
  /// Writes to the file at `path` (appended to; "" means standard error) from `least` upwards.
  static Outcome<std::unique_ptr<Log>> open(const std::string& path, LogFormat format, Level least);
  /// Writes what is queued, for at most a second, and ends the thread.
  ~Log();

  /// `event` is a fixed short text ("model loaded"); what varies goes into fields.
  void write(Level level, std::string_view event, std::initializer_list<Field> fields = {}) noexcept;
  /// The same, at most every ten seconds: clients choose how often it comes.
  void write_seldom(Seldom& when, Level level, std::string_view event, std::initializer_list<Field> fields) noexcept {
    if (when.is_due()) write(level, event, fields);
  }
  /// From within `catch`, where nobody waits for the exception: counts it and, at most every ten seconds, says that `what`
  /// was given up. See contain().
  void caught(std::string_view what) noexcept;
  bool writes(Level level) const { return level >= least_; }
  /// Waits until what is queued was written, at most a second.
  void flush();
  /// Lines that could not be written since the start.
  std::uint64_t dropped() const;
  /// Exceptions that were caught() since the start.
  std::uint64_t exceptions() const { return exceptions_; }

 private:
  struct Writer;
  Log(std::unique_ptr<Writer> writer, LogFormat format, Level least);
  std::unique_ptr<Writer> writer_;
  LogFormat format_;
  Level least_;
  Seldom told_;
  std::atomic<std::uint64_t> exceptions_{0};
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_LOG_H
