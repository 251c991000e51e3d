// POSIX shared memory that clients registered, by name. Each token has names of its own; who shows none ("") shares them.
//
// Regions are read and written with pread and pwrite, never mapped: a client that shrinks its region gets an error, the
// server cannot be killed by it (SIGBUS). All functions are safe from any thread. Errors: kInvalid, kNotFound.
#ifndef HARDTACK_SERVER_CORE_SHARED_MEMORY_H
#define HARDTACK_SERVER_CORE_SHARED_MEMORY_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/core/budget.h"
#include "server/core/error.h"
#include "server/core/request.h"

namespace hardtack::serve {

/// A region as the client registered it.
struct Region {
  std::string owner;  // as Request::owner
  std::string name;
  std::string key;  // as shm_open takes it: "/input"
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
};

/// Bytes of a region: what the parameters shared_memory_region, _offset and _byte_size say.
struct Placement {
  std::string owner;  // of the region
  std::string region;
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
};

/// The parameter of a tensor that has this name; nothing without.
using FindParameter = std::function<std::optional<Parameter>(const char* name)>;

/// Where a tensor (`which`, as input_named has it) of `owner` lies by its parameters; an empty region: not in shared memory.
/// kInvalid: a parameter of the wrong type, or no size.
Outcome<Placement> placement_of(const std::string& which, const std::string& owner, const FindParameter& find);

class SharedMemory {
 public:
  /// Opens the object and checks that it is long enough. A name that its owner has registered already is refused.
  Failure add(const Region& region);
  /// `name` "" forgets all of the owner's. An unknown name is fine, as the protocol's servers have it. Requests that use the
  /// region meanwhile finish.
  void remove(const std::string& owner, const std::string& name);
  /// The owner's, in the order of names; `name` "" means all.
  Outcome<std::vector<Region>> list(const std::string& owner, const std::string& name) const;

  /// A copy of the bytes in memory of its own.
  Outcome<std::shared_ptr<std::byte>> read(const Placement& place, Budget& budget) const;
  /// That the region has the place.
  Failure check(const Placement& place) const;
  /// That write() would write so many bytes now.
  Failure check(const Placement& place, std::size_t nbytes) const;
  /// Writes `nbytes` to the start of the place; kInvalid when it holds less.
  Failure write(const Placement& place, const void* data, std::size_t nbytes) const;

 private:
  struct Open;
  using Regions = std::map<std::string, std::shared_ptr<const Open>>;  // by key_of()
  static std::string key_of(const std::string& owner, const std::string& name) { return owner + '\0' + name; }
  std::pair<Regions::const_iterator, Regions::const_iterator> all_of(const std::string& owner) const;
  Outcome<std::shared_ptr<const Open>> find(const Placement& place) const;
  static Failure check(const Placement& place, std::size_t nbytes, const Open& open);
  mutable std::mutex mutex_;
  Regions regions_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_SHARED_MEMORY_H
