// A library that is loaded before the others (LD_PRELOAD) and makes one call of the system or of the allocator fail: what a full
// disk, a broken one, a signal or a killed process do. Nothing happens until faults_arm is called, or, in a program that
// cannot call it, until a signal comes: with FAULTS_IN=PROGRAM, SIGUSR2 makes the next allocation fail that the program's own
// code asks for, at the next SIGUSR2 the second, and so on; SIGUSR1 ends it. A line on standard error says that it is done.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

enum Kind : int { kError = 0, kShort = 1, kKill = 2 };

char folder[4096];   // calls on files below it count
char call_name[32];  // the call that fails
long fails_at = 0;   // the number of the call that fails, from 1; 0: none
int kind = kError;
int number = 0;  // errno
std::atomic<long> seen{0};
std::atomic<bool> armed{false};
char program[64];  // whose allocations fail; empty: those of the runtime

bool below_folder(const char* path) { return path != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0; }

bool below_folder(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return below_folder(path);
}

/// Whether this call is the one; a process to be killed does not come back.
bool is_due(const char* name) {
  if (std::strcmp(name, call_name) != 0 || ++seen != fails_at) return false;
  if (kind == kKill) ::kill(::getpid(), SIGKILL);
  return true;
}

template <typename File>
bool due(const char* name, File file) {
  return armed && std::strcmp(name, call_name) == 0 && below_folder(file) && is_due(name);
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

long fail() {
  errno = number;
  return -1;
}

/// Whether the runtime's library is among the callers. pybind11 makes its objects in functions that may not throw: memory that
/// fails there ends the process, whatever we do.
bool from_runtime() {
  void* frames[24];
  const int depth = ::backtrace(frames, 24);
  for (int i = 0; i < depth; ++i) {
    Dl_info about;
    if (::dladdr(frames[i], &about) != 0 && std::strstr(about.dli_fname, "libhardtack") != nullptr) return true;
  }
  return false;
}

/// Whether `program` itself asks for memory, perhaps through the standard library, and no other library in between.
bool from_program() {
  void* frames[24];
  const int depth = ::backtrace(frames, 24);
  Dl_info mine, about;
  ::dladdr(reinterpret_cast<void*>(&from_program), &mine);
  for (int i = 0; i < depth; ++i) {
    if (::dladdr(frames[i], &about) == 0 || about.dli_fbase == mine.dli_fbase) continue;
    if (std::strstr(about.dli_fname, "libstdc++") == nullptr) return std::strstr(about.dli_fname, program) != nullptr;
  }
  return false;
}

bool from_here() { return program[0] == '\0' ? from_runtime() : from_program(); }

void on_signal(int signal) {
  constexpr char kArmed[] = "faults: armed\n", kDisarmed[] = "faults: disarmed\n";
  armed = false;
  if (signal == SIGUSR1) return (void)!::write(STDERR_FILENO, kDisarmed, sizeof kDisarmed - 1);
  ++fails_at;
  seen = 0;
  armed = true;
  (void)!::write(STDERR_FILENO, kArmed, sizeof kArmed - 1);
}

[[gnu::constructor]] void read_environment() {
  const char* name = std::getenv("FAULTS_IN");
  if (name == nullptr) return;
  from_runtime();
  std::snprintf(program, sizeof program, "%s", name);
  std::snprintf(call_name, sizeof call_name, "new");
  ::signal(SIGUSR1, on_signal);
  ::signal(SIGUSR2, on_signal);
}

void* allocate(std::size_t nbytes) {
  if (armed && std::strcmp(call_name, "new") == 0 && from_here() && is_due("new")) throw std::bad_alloc();
  if (void* memory = std::malloc(nbytes == 0 ? 1 : nbytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

extern "C" {

void faults_arm(const char* under, const char* call, long at, int how, int error) {
  from_runtime();  // the first backtrace loads a library
  std::snprintf(folder, sizeof folder, "%s", under);
  std::snprintf(call_name, sizeof call_name, "%s", call);
  fails_at = at, kind = how, number = error, seen = 0, armed = true;
}

/// How many calls there were since; nothing fails any more.
long faults_disarm() {
  armed = false;
  return seen;
}

ssize_t read(int fd, void* to, size_t nbytes) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  if (!due("read", fd)) return real(fd, to, nbytes);
  return kind == kShort ? real(fd, to, nbytes < 1 ? nbytes : 1) : fail();
}

ssize_t pread(int fd, void* to, size_t nbytes, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  if (!due("pread", fd)) return real(fd, to, nbytes, offset);
  return kind == kShort ? real(fd, to, nbytes < 1 ? nbytes : 1, offset) : fail();
}

ssize_t pread64(int fd, void* to, size_t nbytes, off64_t offset) { return pread(fd, to, nbytes, offset); }

ssize_t write(int fd, const void* from, size_t nbytes) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (!due("write", fd)) return real(fd, from, nbytes);
  return kind == kShort ? real(fd, from, nbytes < 1 ? nbytes : 1) : fail();
}

int fsync(int fd) {
  static const auto real = next<int (*)(int)>("fsync");
  return due("fsync", fd) ? static_cast<int>(fail()) : real(fd);
}

int fchmod(int fd, mode_t mode) {
  static const auto real = next<int (*)(int, mode_t)>("fchmod");
  return due("fchmod", fd) ? static_cast<int>(fail()) : real(fd, mode);
}

int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return due("rename", to) ? static_cast<int>(fail()) : real(from, to);
}

int open(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return due("open", path) ? static_cast<int>(fail()) : real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open(path, flags, mode);
}

int fstat(int fd, struct stat* about) {
  static const auto real = next<int (*)(int, struct stat*)>("fstat");
  return due("fstat", fd) ? static_cast<int>(fail()) : real(fd, about);
}

void* mmap(void* at, size_t nbytes, int protection, int flags, int fd, off_t offset) {
  static const auto real = next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  const bool counts = armed && std::strcmp(call_name, "mmap") == 0 && (fd < 0 || below_folder(fd));
  if (!counts || !is_due("mmap")) return real(at, nbytes, protection, flags, fd, offset);
  fail();
  return MAP_FAILED;
}

void* mmap64(void* at, size_t nbytes, int protection, int flags, int fd, off64_t offset) {
  return mmap(at, nbytes, protection, flags, fd, offset);
}

int memfd_create(const char* name, unsigned flags) {
  static const auto real = next<int (*)(const char*, unsigned)>("memfd_create");
  const bool fails = armed && std::strcmp(call_name, "memfd_create") == 0 && is_due("memfd_create");
  return fails ? static_cast<int>(fail()) : real(name, flags);
}

}  // extern "C"

void* operator new(std::size_t nbytes) { return allocate(nbytes); }
void* operator new[](std::size_t nbytes) { return allocate(nbytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
