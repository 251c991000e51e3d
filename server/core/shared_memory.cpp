#include "server/core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "server/core/access.h"
#include "server/core/protocol.h"
#include "server/core/tensor.h"
#include "server/core/text.h"

namespace hardtack::serve {

namespace {

constexpr std::size_t kMostRegions = 4096;
constexpr std::size_t kLongestName = 1024;

Error invalid(std::string sentence) { return {Code::kInvalid, std::move(sentence)}; }

std::string region_named(const std::string& name) { return "shared memory region \"" + cut(name, 200) + "\""; }

}  // namespace

Outcome<Placement> placement_of(const std::string& which, const std::string& owner, const FindParameter& find) {
  const auto region = find("shared_memory_region");
  if (!region) return Placement{};
  const auto* name = std::get_if<std::string>(&*region);
  if (name == nullptr || name->empty()) {
    return invalid("parameter \"shared_memory_region\" of " + which + " must be a name");
  }
  const auto size = find("shared_memory_byte_size");
  if (!size) return invalid(which + " lies in shared memory and has no parameter \"shared_memory_byte_size\"");
  auto nbytes = size_parameter(which, "shared_memory_byte_size", *size);
  if (!nbytes.ok()) return nbytes.error();
  auto offset = size_parameter(which, "shared_memory_offset", find("shared_memory_offset").value_or(std::int64_t{0}));
  if (!offset.ok()) return offset.error();
  return Placement{owner, *name, *offset, *nbytes};
}

struct SharedMemory::Open {
  Region region;
  int file = -1;
  ~Open() {
    if (file >= 0) ::close(file);
  }
};

Failure SharedMemory::add(const Region& region) {
  if (region.name.empty()) return invalid("a shared memory region needs a name");
  if (region.name.size() > kLongestName || !is_utf8(region.name)) {
    return invalid("the name of a shared memory region must be UTF-8 of at most " + std::to_string(kLongestName) +
                   " bytes; this one has " + std::to_string(region.name.size()));
  }
  if (region.nbytes == 0) return invalid(region_named(region.name) + " has byte_size 0");
  const std::size_t slash = region.key.find('/', 1);
  if (region.key.size() < 2 || region.key.size() > 255 || slash != std::string::npos ||
      region.key.find('\0') != std::string::npos || region.key == "/." || region.key == "/..") {
    return invalid(region_named(region.name) + ": key \"" + cut(region.key, 200) +
                   "\" is no name for shm_open, like \"/input\"");
  }
  auto open = std::make_shared<Open>();
  open->region = region;
  open->file = ::shm_open(region.key.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (open->file < 0) {
    return invalid(region_named(region.name) + ": \"" + region.key + "\" cannot be opened: " + std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(open->file, &status) != 0 || !S_ISREG(status.st_mode)) {
    return invalid(region_named(region.name) + ": \"" + region.key + "\" is no shared memory object");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (region.offset > size || region.nbytes > size - region.offset) {
    return invalid(region_named(region.name) + ": bytes " + std::to_string(region.offset) + " to " +
                   std::to_string(region.offset) + " + " + std::to_string(region.nbytes) + " pass the end of \"" +
                   region.key + "\", which has " + std::to_string(size));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (regions_.size() >= kMostRegions) {
    return Error{Code::kTooLarge,
                 std::to_string(kMostRegions) + " shared memory regions are registered; that is the most"};
  }
  const auto [first, end] = all_of(region.owner);
  const auto mine = static_cast<std::size_t>(std::distance(first, end));
  if (!leaves_a_share(region.owner, mine, regions_.size(), kMostRegions)) {
    return Error{Code::kTooLarge, "token \"" + region.owner + "\" has registered " + std::to_string(mine) +
                                      " shared memory regions; the " + std::to_string(kMostRegions - regions_.size()) +
                                      " that are left are for others"};
  }
  if (!regions_.emplace(key_of(region.owner, region.name), std::move(open)).second) {
    return invalid(region_named(region.name) + " is registered already; unregister it first");
  }
  return std::nullopt;
}

std::pair<SharedMemory::Regions::const_iterator, SharedMemory::Regions::const_iterator> SharedMemory::all_of(
    const std::string& owner) const {
  return {regions_.lower_bound(owner + '\0'), regions_.lower_bound(owner + '\1')};
}

void SharedMemory::remove(const std::string& owner, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (name.empty()) {
    const auto [first, end] = all_of(owner);
    regions_.erase(first, end);
  } else {
    regions_.erase(key_of(owner, name));
  }
}

Outcome<std::vector<Region>> SharedMemory::list(const std::string& owner, const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Region> result;
  const auto [first, end] = all_of(owner);
  for (auto it = first; it != end; ++it) {
    const Region& region = it->second->region;
    if (name.empty() || region.name == name) result.push_back(region);
  }
  if (!name.empty() && result.empty()) return Error{Code::kNotFound, region_named(name) + " is not registered"};
  return result;
}

Outcome<std::shared_ptr<const SharedMemory::Open>> SharedMemory::find(const Placement& place) const {
  std::shared_ptr<const Open> open;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = regions_.find(key_of(place.owner, place.region));
    if (found == regions_.end()) return invalid(region_named(place.region) + " is not registered");
    open = found->second;
  }
  const std::uint64_t whole = open->region.nbytes;
  if (place.offset > whole || place.nbytes > whole - place.offset) {
    return invalid(region_named(place.region) + " has " + std::to_string(whole) + " bytes; " +
                   std::to_string(place.nbytes) + " from " + std::to_string(place.offset) + " on do not lie in it");
  }
  return open;
}

Outcome<std::shared_ptr<std::byte>> SharedMemory::read(const Placement& place, Budget& budget) const {
  auto open = find(place);
  if (!open.ok()) return open.error();
  std::shared_ptr<std::byte> memory = budget.allocate(place.nbytes);
  if (memory == nullptr) return budget.refusal("an input in " + region_named(place.region), place.nbytes);
  const std::uint64_t start = (*open)->region.offset + place.offset;
  std::uint64_t done = 0;
  while (done < place.nbytes) {
    const ssize_t got =
        ::pread((*open)->file, memory.get() + done, place.nbytes - done, static_cast<off_t>(start + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return invalid(region_named(place.region) + " became shorter than it was registered");
    done += static_cast<std::uint64_t>(got);
  }
  return memory;
}

Failure SharedMemory::check(const Placement& place) const {
  auto open = find(place);
  if (!open.ok()) return open.error();
  return std::nullopt;
}

Failure SharedMemory::check(const Placement& place, std::size_t nbytes) const {
  auto open = find(place);
  if (!open.ok()) return open.error();
  return check(place, nbytes, **open);
}

Failure SharedMemory::check(const Placement& place, std::size_t nbytes, const Open& open) {
  if (nbytes > place.nbytes) {
    return invalid(region_named(place.region) + ": " + std::to_string(place.nbytes) +
                   " bytes were set aside for an output of " + std::to_string(nbytes));
  }
  const std::uint64_t end = open.region.offset + place.offset + nbytes;
  struct stat status {};
  if (::fstat(open.file, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < end) {
    return invalid(region_named(place.region) + " became shorter than it was registered");
  }
  return std::nullopt;
}

Failure SharedMemory::write(const Placement& place, const void* data, std::size_t nbytes) const {
  auto open = find(place);
  if (!open.ok()) return open.error();
  if (Failure wrong = check(place, nbytes, **open)) return wrong;
  const std::uint64_t start = (*open)->region.offset + place.offset;
  std::uint64_t done = 0;
  while (done < nbytes) {
    const ssize_t put = ::pwrite((*open)->file, static_cast<const std::byte*>(data) + done, nbytes - done,
                                 static_cast<off_t>(start + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return invalid(region_named(place.region) + " cannot be written: " + std::strerror(errno));
    done += static_cast<std::uint64_t>(put);
  }
  return std::nullopt;
}

}  // namespace hardtack::serve
