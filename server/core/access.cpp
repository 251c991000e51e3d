#include "server/core/access.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "server/core/request.h"

namespace hardtack::serve {

namespace {

constexpr std::size_t kShortest = 16, kLongest = 512, kLongestName = 64, kMostTokens = 4096;

// Takes as long wherever they differ, so that a token cannot be found byte by byte.
bool equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return differs == 0;
}

// The token of "Bearer TOKEN"; "" for anything else.
std::string_view token_of(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return "";
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return "";
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  while (!authorization.empty() && authorization.back() == ' ') authorization.remove_suffix(1);
  return authorization;
}

bool is_name(const std::string& text) {
  return text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

// 0: one of them is no role.
unsigned roles_of(const std::string& text) {
  unsigned roles = 0;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const Role role = part == "infer"     ? Role::kInfer
                      : part == "control" ? Role::kControl
                      : part == "metrics" ? Role::kMetrics
                                          : Role::kNone;
    if (role == Role::kNone) return 0;
    roles |= static_cast<unsigned>(role);
  }
  return roles;
}

const char* name_of(Role role) {
  switch (role) {
    case Role::kInfer: return "infer";
    case Role::kControl: return "control";
    case Role::kMetrics: return "metrics";
    default: return "any";
  }
}

}  // namespace

struct Access::Token {
  std::string name, secret;
  unsigned roles = 0;
  double rate = 0;  // requests a second; 0: no limit
  std::atomic<std::uint64_t> admitted{0};

  // A second's worth of requests may come at once.
  bool take() {
    if (rate == 0) return true;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto now = Clock::now();
    const double most = std::max(rate, 1.0);
    left = std::min(most, left + rate * std::chrono::duration<double>(now - since).count());
    since = now;
    if (left < 1) return false;
    left -= 1;
    return true;
  }

  std::mutex mutex;
  double left = 1e9;
  Clock::time_point since = Clock::now();
};

Outcome<std::unique_ptr<Access>> Access::open(const std::string& path, Log& log) {
  auto access = std::unique_ptr<Access>(new Access(path, log));
  if (path.empty()) return access;
  auto tokens = read(path);
  if (!tokens.ok()) return tokens.error();
  access->tokens_ = std::make_shared<const Tokens>(std::move(*tokens));
  return access;
}

// What a line says is not repeated: it has a secret.
Outcome<Access::Tokens> Access::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Code::kInvalid, "the file of tokens " + path + " cannot be read"};
  Tokens tokens;
  std::set<std::string> names, secrets;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    const auto bad = [&, at = ++number](const std::string& why) {
      return Error{Code::kInvalid, std::string(path).append(", line " + std::to_string(at) + ": ").append(why)};
    };
    std::istringstream fields(line.substr(0, line.find('#')));
    auto token = std::make_shared<Token>();
    std::string roles, rate, more;
    if (!(fields >> token->name)) continue;
    if (!(fields >> token->secret >> roles)) return bad("expected a name, a token, and roles separated by commas");
    if (!is_name(token->name)) return bad("a name has at most 64 letters, digits, '.', '_' and '-'");
    if (token->secret.size() < kShortest || token->secret.size() > kLongest) {
      return bad("a token has from " + std::to_string(kShortest) + " to " + std::to_string(kLongest) + " characters");
    }
    token->roles = roles_of(roles);
    if (token->roles == 0) return bad("the roles are infer, control and metrics, separated by commas");
    if (fields >> rate) {
      char* end = nullptr;
      token->rate = std::strtod(rate.c_str(), &end);
      if (*end != '\0' || !(token->rate > 0) || token->rate > 1e9) {
        return bad("the requests a second must be a number above 0");
      }
    }
    if (fields >> more) return bad("there is more behind the requests a second");
    if (!names.insert(token->name).second) return bad("the name \"" + token->name + "\" is there twice");
    if (!secrets.insert(token->secret).second) return bad("the token of \"" + token->name + "\" is there twice");
    if (tokens.size() >= kMostTokens) return bad("there are more than " + std::to_string(kMostTokens) + " tokens");
    tokens.push_back(std::move(token));
  }
  if (file.bad()) return Error{Code::kInvalid, "the file of tokens " + path + " cannot be read to its end"};
  return tokens;
}

std::shared_ptr<const Access::Tokens> Access::tokens() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tokens_;
}

Outcome<Caller> Access::admit(std::string_view authorization, Role role) noexcept {
  try {
    auto caller = check(authorization, role);
    if (!caller.ok()) ++refused_[static_cast<std::size_t>(caller.error().code)];
    return caller;
  } catch (...) {
    return from_exception();
  }
}

Outcome<Caller> Access::check(std::string_view authorization, Role role) {
  if (path_.empty() || role == Role::kNone) return Caller{};
  const auto all = tokens();
  const std::string_view shown = token_of(authorization);
  Token* found = nullptr;
  for (const auto& token : *all) {
    if (equal(token->secret, shown)) found = token.get();
  }
  if (found == nullptr) {
    return Error{Code::kUnauthenticated,
                 authorization.empty() ? "this server asks for a token: send the header Authorization: Bearer TOKEN"
                                       : "the token in the header Authorization is not known to this server"};
  }
  if ((found->roles & static_cast<unsigned>(role)) == 0) {
    return Error{Code::kForbidden, "token \"" + found->name + "\" has not the role " + name_of(role)};
  }
  if (!found->take()) {
    std::ostringstream rate;
    rate << found->rate;
    return Error{Code::kTooMany,
                 "token \"" + found->name + "\" may send " + rate.str() + " requests a second; try again later"};
  }
  ++found->admitted;
  return Caller{found->name, std::hash<std::string>()(found->name) | 1U};
}

// Who was counted before goes on being counted, and does not begin with a fresh second.
bool Access::reload() noexcept {
  constexpr const char* kNotTaken = "the file of tokens was not taken; those known before go on";
  if (path_.empty()) return true;
  try {
    auto fresh = read(path_);
    if (!fresh.ok()) {
      const bool later = is_unreadable({path_});
      if (!later || unreadable_.is_due()) log_.write(Level::kError, kNotTaken, {{"reason", fresh.error().sentence}});
      return !later;
    }
    const auto before = tokens();
    for (auto& token : *fresh) {
      for (const auto& old : *before) {
        const bool same = old->name == token->name && old->secret == token->secret && old->roles == token->roles &&
                          old->rate == token->rate;
        if (same) token = old;
      }
    }
    auto now = std::make_shared<const Tokens>(std::move(*fresh));
    log_.write(Level::kInfo, "tokens read", {{"path", path_}, {"tokens", now->size()}});
    const std::lock_guard<std::mutex> lock(mutex_);
    tokens_ = std::move(now);
    return true;
  } catch (...) {
    log_.write_seldom(unreadable_, Level::kError, kNotTaken, {{"reason", from_exception().sentence}});
    return false;
  }
}

FileWatch::Watched Access::watched() {
  return {{path_}, stamp_, [this] { return reload(); }};
}

void Access::write_metrics(MetricsPage& page) const {
  if (path_.empty()) return;
  page.family("hardtack_token_requests_total", "counter", "Requests that were let in, by token.");
  const auto all = tokens();
  for (const auto& token : *all) {
    page.sample("hardtack_token_requests_total", label("token", token->name), token->admitted.load());
  }
  page.family("hardtack_access_refused_total", "counter", "Requests that were not let in, by reason.");
  for (const Code code : {Code::kUnauthenticated, Code::kForbidden, Code::kTooMany}) {
    page.sample("hardtack_access_refused_total", label("reason", code_name(code)),
                refused_[static_cast<std::size_t>(code)].load());
  }
}

}  // namespace hardtack::serve
