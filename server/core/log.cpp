#include "server/core/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "server/core/text.h"

namespace hardtack::serve {

namespace {

constexpr std::size_t kMostWaiting = 8192;
constexpr std::size_t kLongestValue = 2000;
constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};

std::string now_text() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  struct tm parts {};
  ::gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1000000);
  return text;
}

// JSON's escapes; bytes that are no UTF-8 are kept out by writing everything beyond ASCII that is not well formed as '?'.
void append_quoted(std::string& line, std::string_view text) {
  line += '"';
  text = text.substr(0, kLongestValue);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      line += escape;
    } else if (c < 0x80) {
      line += static_cast<char>(c);
    } else {
      const std::size_t nbytes = character_nbytes(text.substr(i));
      line += nbytes > 0 ? text.substr(i, nbytes) : "?";
      if (nbytes > 0) i += nbytes - 1;
    }
  }
  line += '"';
}

void append_number(std::string& line, double number) {
  char text[40];
  if (std::isfinite(number) && number == std::floor(number) && std::fabs(number) < 1e15) {
    std::snprintf(text, sizeof text, "%.0f", number);
  } else {
    std::snprintf(text, sizeof text, "%.6g", std::isfinite(number) ? number : 0.0);
  }
  line += text;
}

}  // namespace

bool Seldom::is_due() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  constexpr std::int64_t kPause = std::chrono::steady_clock::duration(std::chrono::seconds(10)).count();
  std::int64_t next = next_;
  return now >= next && next_.compare_exchange_strong(next, now + kPause);
}

struct Log::Writer {
  int file = STDERR_FILENO;
  bool owned = false;
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::string> lines;
  std::uint64_t untold = 0;  // dropped since the last line that says so
  bool ending = false;
  bool writing = false;
  bool gone = false;
  std::condition_variable ended;
  std::atomic<std::uint64_t> dropped{0};
  std::thread thread;

  ~Writer() {
    if (owned) ::close(file);
  }

  bool torn = false;  // a line was cut off: the next one starts on a line of its own

  bool put(const std::string& whole) {
    const std::string text = torn ? "\n" + whole : whole;
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(file, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        torn = torn || done > 0;
        return false;
      }
      done += static_cast<std::size_t>(n);
    }
    torn = false;
    return true;
  }

  void tell_later(std::uint64_t count) {
    const std::lock_guard<std::mutex> lock(mutex);
    untold += count;
  }

  // First that so many lines are `missing`. What cannot be written is counted and told of later.
  void put_all(const std::vector<std::string>& batch, std::uint64_t missing, LogFormat format) {
    std::size_t done = 0;
    try {
      if (missing > 0) {
        std::string note;
        render(note, format, Level::kWarning, "log lines were dropped", {{"count", missing}});
        if (put(note)) missing = 0;
      }
      while (missing == 0 && done < batch.size() && put(batch[done])) ++done;
    } catch (const std::bad_alloc&) {
    }
    const std::uint64_t lost = batch.size() - done;
    dropped += lost;
    tell_later(missing + lost);
  }

  void loop(LogFormat format) {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return ending || !lines.empty(); });
      if (lines.empty()) {
        gone = true;
        ended.notify_all();
        return;
      }
      std::vector<std::string> batch;
      batch.swap(lines);
      writing = true;
      const std::uint64_t missing = untold;
      untold = 0;
      lock.unlock();
      put_all(batch, missing, format);
      lock.lock();
      writing = false;
      ended.notify_all();
    }
  }

  static void render(std::string& line, LogFormat format, Level level, std::string_view event,
                     std::initializer_list<Field> fields) {
    const bool json = format == LogFormat::kJson;
    const char* name = kLevels[static_cast<int>(level)];
    line =
        json ? "{\"time\":\"" + now_text() + "\",\"level\":\"" + name + "\",\"event\":" : now_text() + " " + name + " ";
    if (json) {
      append_quoted(line, event);
    } else {
      line += event;
    }
    for (const Field& field : fields) {
      line += json ? "," : " ";
      if (json) {
        append_quoted(line, field.name);
        line += ':';
      } else {
        (line += field.name) += '=';
      }
      if (field.is_number) {
        append_number(line, field.number);
      } else {
        append_quoted(line, field.text);
      }
    }
    line += json ? "}\n" : "\n";
  }
};

Log::Log(std::unique_ptr<Writer> writer, LogFormat format, Level least)
    : writer_(std::move(writer)), format_(format), least_(least) {}

Outcome<std::unique_ptr<Log>> Log::open(const std::string& path, LogFormat format, Level least) {
  auto writer = std::make_unique<Writer>();
  if (!path.empty()) {
    writer->file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (writer->file < 0) {
      return Error{Code::kInvalid, "the log file " + path + " cannot be opened: " + std::strerror(errno)};
    }
    writer->owned = true;
  }
  Writer* raw = writer.get();
  writer->thread = std::thread([raw, format] { raw->loop(format); });
  return std::unique_ptr<Log>(new Log(std::move(writer), format, least));
}

Log::~Log() {
  std::unique_lock<std::mutex> lock(writer_->mutex);
  writer_->ending = true;
  writer_->wake.notify_all();
  // A terminal or pipe that nobody reads may hang the writer: then it is left to the end of the process.
  if (writer_->ended.wait_for(lock, std::chrono::seconds(1), [&] { return writer_->gone; })) {
    lock.unlock();
    writer_->thread.join();
    return;
  }
  lock.unlock();
  writer_->thread.detach();
  (void)writer_.release();
}

void Log::write(Level level, std::string_view event, std::initializer_list<Field> fields) noexcept try {
  if (!writes(level)) return;
  std::string line;
  Writer::render(line, format_, level, event, fields);
  {
    const std::lock_guard<std::mutex> lock(writer_->mutex);
    if (writer_->lines.size() >= kMostWaiting) {
      ++writer_->dropped;
      ++writer_->untold;
      return;
    }
    writer_->lines.push_back(std::move(line));
  }
  writer_->wake.notify_one();
} catch (const std::bad_alloc&) {
  ++writer_->dropped;
  writer_->tell_later(1);
}

void Log::caught(std::string_view what) noexcept {
  ++exceptions_;
  if (told_.is_due()) {
    write(Level::kError, "something was given up", {{"what", what}, {"reason", from_exception().sentence}});
  }
}

void Log::flush() {
  std::unique_lock<std::mutex> lock(writer_->mutex);
  writer_->ended.wait_for(lock, std::chrono::seconds(1), [&] { return writer_->lines.empty() && !writer_->writing; });
}

std::uint64_t Log::dropped() const { return writer_->dropped; }

}  // namespace hardtack::serve
