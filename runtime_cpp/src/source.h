// Where a bundle's bytes come from: a file or memory. Reads are bounded copies, never pointers into a mapping, so that
// a file that shrinks while it is loaded gives an error and not a signal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "status.h"

namespace hardtack::rt {

/// Bytes that stay where they are until the object goes: a mapping, a copy, or the caller's memory.
class Bytes {
 public:
  virtual ~Bytes() = default;
  const uint8_t* data() const { return data_; }
  uint64_t nbytes() const { return nbytes_; }

 protected:
  const uint8_t* data_ = nullptr;
  uint64_t nbytes_ = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  uint64_t nbytes() const { return nbytes_; }
  /// Copies [offset, offset + nbytes); HT_BAD_BUNDLE when it is not inside, HT_IO when it cannot be read.
  virtual Status read(uint64_t offset, uint64_t nbytes, void* to) const = 0;
  /// Whether the bytes are still those that were there when the source was opened, as far as size and dates tell.
  virtual Status check_unchanged() const = 0;
  /// All bytes, in place: mapped, or the caller's memory. `copy`: in memory of their own.
  virtual Status hold(bool copy, std::shared_ptr<const Bytes>* bytes) const = 0;
  /// Whether nobody can change the bytes that `hold` gives without a copy: a file that the system itself keeps as it is,
  /// or memory that the caller promised to leave alone.
  virtual bool is_immutable() const = 0;
  /// How many bytes of [offset, offset + nbytes) are holes of a sparse file: zeros that take no room there.
  virtual uint64_t hole_nbytes(uint64_t offset, uint64_t nbytes) const = 0;

 protected:
  uint64_t nbytes_ = 0;
};

Status open_file(const std::string& path, std::unique_ptr<Source>* source);
/// Bytes that are held already.
std::unique_ptr<Source> open_held(std::shared_ptr<const Bytes> bytes);
/// With `release`, uses the memory in place until the last user is gone; otherwise copies it when it is held.
std::unique_ptr<Source> open_memory(const void* data, size_t nbytes, void (*release)(void*), void* user);

}  // namespace hardtack::rt
