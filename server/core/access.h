// Who may do what: bearer tokens from a file, each with a name, roles and perhaps a rate.
//
//   # name  token             roles          requests a second
//   app     Zq3c...           infer          200
//   ops     9fYd...           control,metrics
//
// Safe from any thread. Without a file everybody may do everything.
#ifndef HARDTACK_SERVER_CORE_ACCESS_H
#define HARDTACK_SERVER_CORE_ACCESS_H

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/error.h"
#include "server/core/file_watch.h"
#include "server/core/log.h"
#include "server/core/metrics.h"

namespace hardtack::serve {

/// What a request asks for. kNone: everybody may (health), kAny: whoever has a token.
enum class Role : unsigned { kNone = 0, kInfer = 1, kControl = 2, kMetrics = 4, kAny = 7 };

/// Who asks; nobody in particular without a file.
struct Caller {
  std::string name;
  std::uint64_t number = 0;  // of a token; 0: it showed none

  /// Who takes turns with others, wherever requests wait: to be read, for a model, for a load. A token is one client on
  /// however many connections it comes; who shows none is told apart by the connection.
  std::uint64_t client(std::uint64_t connection) const { return number != 0 ? number : connection; }
};

/// Whether `owner`, a token's name, with `mine` of `most` places may take one more where `all` are taken: while more are free
/// than it has, so that others find some. Where there are no tokens, all are one's.
inline bool leaves_a_share(const std::string& owner, std::size_t mine, std::size_t all, std::size_t most) {
  return owner.empty() || mine < most - all;
}

class Access {
 public:
  /// Reads the file at `path`; "" for none. kInvalid names the line. `log` must outlive it.
  static Outcome<std::unique_ptr<Access>> open(const std::string& path, Log& log);

  /// Whether there is a file: else everybody is admitted.
  bool asks() const { return !path_.empty(); }
  /// Counts one request whose header Authorization is this. kUnauthenticated: it shows no token that is known; kForbidden:
  /// the token has not the role; kTooMany: it passes its rate.
  Outcome<Caller> admit(std::string_view authorization, Role role) noexcept;
  /// Reads the file again; one that is bad changes nothing, and the log says so. False: it cannot be read now.
  bool reload() noexcept;
  /// The file, as it was when it was opened.
  FileWatch::Watched watched();

  void write_metrics(MetricsPage& page) const;

 private:
  struct Token;
  using Tokens = std::vector<std::shared_ptr<Token>>;
  Access(std::string path, Log& log) : path_(std::move(path)), log_(log), stamp_(stamp_of_files({path_})) {}
  static Outcome<Tokens> read(const std::string& path);
  Outcome<Caller> check(std::string_view authorization, Role role);
  std::shared_ptr<const Tokens> tokens() const;

  const std::string path_;
  Log& log_;
  const std::string stamp_;  // before it was read
  Seldom unreadable_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Tokens> tokens_;  // under mutex_; null: no file
  std::array<std::atomic<std::uint64_t>, kNumCodes> refused_{};
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_ACCESS_H
