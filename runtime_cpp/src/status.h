// Status: a code and a sentence; null when all is well, so that success allocates nothing.
#pragma once

#include <hardtack/hardtack.h>

#include <memory>
#include <string>

struct ht_status {
  ht_code code;
  std::string message;
};

namespace hardtack::rt {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ht_code code, std::string message) : detail_(new ht_status{code, std::move(message)}) {}

  bool ok() const { return detail_ == nullptr; }
  ht_code code() const { return detail_ ? detail_->code : HT_OK; }
  const char* message() const { return detail_ ? detail_->message.c_str() : ""; }
  /// Gives the C handle to the caller; null when ok.
  ht_status* release() { return detail_.release(); }

 private:
  std::unique_ptr<ht_status> detail_;
};

/// A failure with a printf-style sentence. Control characters in the result are replaced by '?': names come from files.
Status error(ht_code code, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// A status that exists even when nothing can be allocated; ht_status_free leaves it alone.
ht_status* out_of_memory();

/// The same sentence with "`prefix`: " before it. Of a status that is ok nothing is made: a prefix that is no string yet
/// must not become one first, since where that fails, what the expression of `status` has allocated would be lost.
Status in_context(Status status, const char* prefix);
Status in_context(Status status, const std::string& prefix);

#define HT_RETURN_IF_ERROR(expression)                     \
  do {                                                     \
    ::hardtack::rt::Status ht_status_local = (expression); \
    if (!ht_status_local.ok()) return ht_status_local;     \
  } while (false)

}  // namespace hardtack::rt
