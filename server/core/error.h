// What can go wrong while serving: a code that every protocol translates, and a sentence for the person who reads it.
//
// Errors are values. Nothing in server/core throws across its headers; std::bad_alloc becomes Code::kNoMemory.
#ifndef HARDTACK_SERVER_CORE_ERROR_H
#define HARDTACK_SERVER_CORE_ERROR_H

#include <hardtack/hardtack.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace hardtack::serve {

enum class Code {
  kInvalid,      // the request is wrong: a name, dtype, shape, size or parameter         HTTP 400, INVALID_ARGUMENT
  kNotReady,     // the model is known, but nothing of it can serve now                   HTTP 400, UNAVAILABLE
  kNotFound,     // no such model, version or shared memory region                        HTTP 404, NOT_FOUND
  kTooLarge,     // over a limit of this server                                           HTTP 413, RESOURCE_EXHAUSTED
  kUnsupported,  // understood, and not done by this server                               HTTP 400, UNIMPLEMENTED
  kUnauthenticated,  // it shows no token that is known                                  HTTP 401, UNAUTHENTICATED
  kForbidden,  // its token may not do this                                              HTTP 403, PERMISSION_DENIED
  kTooMany,    // its token passes its rate; try again later                             HTTP 429, RESOURCE_EXHAUSTED
  kQueueFull,  // the model's queue is full; try again later                            HTTP 503, UNAVAILABLE
  kStopping,   // the server is shutting down or the version was unloaded meanwhile     HTTP 503, UNAVAILABLE
  kNoMemory,   // an allocation failed                                                  HTTP 503, RESOURCE_EXHAUSTED
  kDeadline,   // the request's deadline passed before it was started                   HTTP 504, DEADLINE_EXCEEDED
  kRunLimit,   // the run was stopped: it took longer than a run may                     HTTP 504, DEADLINE_EXCEEDED
  kCancelled,  // the client went away before the request was started                   no answer, CANCELLED
  kModel,      // the model refused the data: an index out of range, a failed assertion HTTP 400, INVALID_ARGUMENT
  kDevice,     // the GPU or its driver failed                                          HTTP 500, INTERNAL
  kInternal,   // a bug                                                                 HTTP 500, INTERNAL
};
inline constexpr std::size_t kNumCodes = static_cast<std::size_t>(Code::kInternal) + 1;

/// "invalid", "queue_full", ... for logs and metrics; lives forever.
const char* code_name(Code code);

struct [[nodiscard]] Error {
  Code code = Code::kInternal;
  std::string sentence;
};

/// The Error for a failed call of the runtime; takes the status over and frees it. `status` must not be null.
Error from_status(ht_status* status);

/// The Error for the exception that is being handled: kNoMemory, without needing memory, or else kInternal.
Error from_exception() noexcept;

/// A value, or the Error that says why there is none.
template <typename T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : value_(std::move(value)) {}
  Outcome(Error error) : error_(std::move(error)) {}

  bool ok() const { return value_.has_value(); }
  /// Only when ok().
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return &*value_; }
  /// Only when not ok().
  const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

/// Nothing, or the Error.
using Failure = std::optional<Error>;

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_ERROR_H
