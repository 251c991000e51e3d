// Files that change: at once when they are read, or while they cannot be.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "server/core/access.h"
#include "server/core/file_watch.h"

using namespace hardtack::serve;

namespace {

namespace fs = std::filesystem;

struct File {
  explicit File(const std::string& text) { write(text); }
  ~File() { fs::remove(path); }
  void write(const std::string& text) const { std::ofstream(path) << text; }

  const fs::path path = fs::temp_directory_path() / ("hardtack_watched_" + std::to_string(::getpid()));
};

// No file can be opened while it lives.
class NoFiles {
 public:
  NoFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

std::unique_ptr<Log> silent_log() {
  auto log = Log::open("/dev/null", LogFormat::kJson, Level::kError);
  REQUIRE(log.ok());
  return std::move(*log);
}

bool admits(Access& access, const std::string& token) { return access.admit("Bearer " + token, Role::kInfer).ok(); }

}  // namespace

TEST_CASE("what changes after it was read, and before anybody watches, is read again") {
  const File file("app first-0123456789abcdef infer\n");
  const auto log = silent_log();
  auto access = Access::open(file.path, *log);
  REQUIRE(access.ok());
  file.write("app second-0123456789abcdef infer\n");
  std::promise<void> read;
  FileWatch::Watched watched = (*access)->watched();
  watched.changed = [&read, again = watched.changed] {
    const bool done = again();
    read.set_value();
    return done;
  };
  const FileWatch watch({watched}, *log);
  REQUIRE(read.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK(admits(**access, "second-0123456789abcdef"));
}

TEST_CASE("what cannot be read is tried again, and what was read is not") {
  const File file("a");
  const auto log = silent_log();
  std::promise<void> third;
  std::atomic<int> calls{0};
  const FileWatch watch({{{file.path, ""},
                          "another",
                          [&] {
                            if (++calls == 2) throw std::bad_alloc();
                            if (calls == 3) third.set_value();
                            return calls == 3;  // a fourth call would set the promise again, and throw
                          }}},
                        *log);
  REQUIRE(third.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // two looks more
  CHECK(calls == 3);
  CHECK(log->exceptions() == 1);
}

TEST_CASE("tokens that cannot be read now are told apart from tokens that are bad") {
  const File file("app first-0123456789abcdef infer\n");
  const auto log = silent_log();
  auto access = Access::open(file.path, *log);
  REQUIRE(access.ok());
  file.write("app second-0123456789abcdef infer\n");
  {
    const NoFiles none;
    CHECK_FALSE((*access)->reload());
  }
  CHECK(admits(**access, "first-0123456789abcdef"));
  CHECK((*access)->reload());
  CHECK(admits(**access, "second-0123456789abcdef"));
  file.write("app short infer\n");
  CHECK((*access)->reload());
  fs::remove(file.path);
  CHECK((*access)->reload());  // it will change when there is one
  CHECK(admits(**access, "second-0123456789abcdef"));
}
