#include "source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checked.h"

namespace hardtack::rt {
namespace {

Status outside(uint64_t offset, uint64_t nbytes, uint64_t total) {
  return error(HT_BAD_BUNDLE, "bytes %llu to %llu + %llu are past the file's end at %llu",
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(offset),
               static_cast<unsigned long long>(nbytes), static_cast<unsigned long long>(total));
}

class Mapping : public Bytes {
 public:
  Mapping(void* data, uint64_t nbytes) {
    data_ = static_cast<const uint8_t*>(data);
    nbytes_ = nbytes;
  }
  ~Mapping() override { ::munmap(const_cast<uint8_t*>(data_), nbytes_); }
};

Status map_anonymous(uint64_t nbytes, uint8_t** data) {
  void* memory = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return error(HT_OUT_OF_MEMORY, "cannot get %llu bytes for the bundle: %s", static_cast<unsigned long long>(nbytes),
                 std::strerror(errno));
  }
  *data = static_cast<uint8_t*>(memory);
  return Status();
}

class FileSource : public Source {
 public:
  FileSource(int fd, const struct stat& about, std::string path) : fd_(fd), about_(about), path_(std::move(path)) {
    nbytes_ = static_cast<uint64_t>(about.st_size);
  }
  ~FileSource() override { ::close(fd_); }

  Status read(uint64_t offset, uint64_t nbytes, void* to) const override {
    if (!range_inside(offset, nbytes, nbytes_)) return outside(offset, nbytes, nbytes_);
    char* at = static_cast<char*>(to);
    while (nbytes > 0) {
      const ssize_t got = ::pread(fd_, at, nbytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return error(HT_IO, "cannot read %s: %s", path_.c_str(), std::strerror(errno));
      if (got == 0) return changed();
      at += got;
      offset += static_cast<uint64_t>(got);
      nbytes -= static_cast<uint64_t>(got);
    }
    return Status();
  }

  Status check_unchanged() const override {
    struct stat now;
    if (::fstat(fd_, &now) != 0) return error(HT_IO, "cannot read %s: %s", path_.c_str(), std::strerror(errno));
    // Not st_ctime: renaming or unlinking the file while it is loaded is allowed and changes it.
    const bool same = now.st_size == about_.st_size && now.st_mtim.tv_sec == about_.st_mtim.tv_sec &&
                      now.st_mtim.tv_nsec == about_.st_mtim.tv_nsec;
    return same ? Status() : changed();
  }

  Status hold(bool copy, std::shared_ptr<const Bytes>* bytes) const override {
    if (copy) {
      uint8_t* memory = nullptr;
      HT_RETURN_IF_ERROR(map_anonymous(nbytes_, &memory));
      *bytes = std::make_shared<Mapping>(memory, nbytes_);
      return read(0, nbytes_, memory);
    }
    void* mapped = ::mmap(nullptr, nbytes_, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (mapped == MAP_FAILED) return error(HT_IO, "cannot map %s: %s", path_.c_str(), std::strerror(errno));
    *bytes = std::make_shared<Mapping>(mapped, nbytes_);
    return Status();
  }

  // A sealed memfd, or a file under fs-verity. Permissions, read-only mounts and the immutable attribute do not do: who
  // has the file open for writing already goes on writing.
  bool is_immutable() const override {
    const int seals = ::fcntl(fd_, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_WRITE) != 0 && (seals & F_SEAL_SHRINK) != 0) return true;
    struct statx about;
    return ::statx(fd_, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &about) == 0 && (about.stx_attributes & kVerity) != 0;
  }

  uint64_t hole_nbytes(uint64_t offset, uint64_t nbytes) const override {
    const uint64_t end = offset + nbytes;
    uint64_t holes = 0;
    for (uint64_t at = offset; at < end;) {
      const off_t data = ::lseek(fd_, static_cast<off_t>(at), SEEK_DATA);
      if (data < 0)
        return errno == ENXIO ? holes + end - at : holes;  // up to the file's end; or the system cannot tell
      const uint64_t start = std::min(static_cast<uint64_t>(data), end);
      holes += start - at;
      const off_t hole = ::lseek(fd_, static_cast<off_t>(start), SEEK_HOLE);
      if (hole <= data) return holes;
      at = static_cast<uint64_t>(hole);
    }
    return holes;
  }

 private:
  static constexpr uint64_t kVerity = 0x00100000;  // STATX_ATTR_VERITY, which older headers lack

  Status changed() const {
    return error(HT_IO, "%s changed while it was loaded; replace a bundle by renaming a new file over it",
                 path_.c_str());
  }

  int fd_;
  struct stat about_;
  std::string path_;
};

class CallerBytes : public Bytes {
 public:
  CallerBytes(const void* data, uint64_t nbytes, void (*release)(void*), void* user) : release_(release), user_(user) {
    data_ = static_cast<const uint8_t*>(data);
    nbytes_ = nbytes;
  }
  ~CallerBytes() override {
    if (release_ != nullptr) release_(user_);
  }

 private:
  void (*release_)(void*);
  void* user_;
};

class MemorySource : public Source {
 public:
  MemorySource(std::shared_ptr<const Bytes> bytes, bool stays) : bytes_(std::move(bytes)), stays_(stays) {
    nbytes_ = bytes_->nbytes();
  }

  Status read(uint64_t offset, uint64_t nbytes, void* to) const override {
    if (!range_inside(offset, nbytes, nbytes_)) return outside(offset, nbytes, nbytes_);
    if (nbytes > 0) std::memcpy(to, bytes_->data() + offset, nbytes);
    return Status();
  }

  Status check_unchanged() const override { return Status(); }

  Status hold(bool copy, std::shared_ptr<const Bytes>* bytes) const override {
    if (stays_ && !copy) return *bytes = bytes_, Status();
    uint8_t* memory = nullptr;
    HT_RETURN_IF_ERROR(map_anonymous(nbytes_, &memory));
    *bytes = std::make_shared<Mapping>(memory, nbytes_);
    return read(0, nbytes_, memory);
  }

  bool is_immutable() const override { return stays_; }
  uint64_t hole_nbytes(uint64_t, uint64_t) const override { return 0; }

 private:
  std::shared_ptr<const Bytes> bytes_;
  bool stays_;  // as it is, until the last user is gone
};

}  // namespace

Status open_file(const std::string& path, std::unique_ptr<Source>* source) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return error(HT_IO, "cannot open %s: %s", path.c_str(), std::strerror(errno));
  struct stat about;
  const int failed = ::fstat(fd, &about) == 0 ? 0 : errno;
  if (failed != 0 || !S_ISREG(about.st_mode)) {
    ::close(fd);
    if (failed != 0) return error(HT_IO, "cannot read %s: %s", path.c_str(), std::strerror(failed));
    return error(HT_IO, "%s is not a regular file", path.c_str());
  }
  *source = std::make_unique<FileSource>(fd, about, path);
  return Status();
}

std::unique_ptr<Source> open_memory(const void* data, size_t nbytes, void (*release)(void*), void* user) {
  return std::make_unique<MemorySource>(std::make_shared<CallerBytes>(data, nbytes, release, user), release != nullptr);
}

std::unique_ptr<Source> open_held(std::shared_ptr<const Bytes> bytes) {
  return std::make_unique<MemorySource>(std::move(bytes), true);
}

}  // namespace hardtack::rt
