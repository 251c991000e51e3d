// Memory of outputs on the host, which is used again when Python has dropped them: fresh memory costs a page fault for
// each 4 KiB, which can take as long as writing it.
#pragma once

#include <cstddef>
#include <vector>

namespace hardtack::py_binding {

// Keeps at most as many bytes as one run has taken. To be called under the GIL.
class HostBlocks {
 public:
  HostBlocks();
  ~HostBlocks() { trim(); }
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // A run begins: what it takes counts from here.
  void begin_run() { run_nbytes_ = 0; }
  // Aligned to 64 bytes. Throws std::bad_alloc.
  void* take(size_t nbytes);
  // Takes back what take(nbytes) gave.
  void give(void* memory, size_t nbytes) noexcept;
  // Frees all that is kept.
  void trim() noexcept;
  // Keeps nothing from now on.
  void close() noexcept;
  size_t kept_nbytes() const { return kept_nbytes_; }

 private:
  struct Block {
    void* memory;
    size_t nbytes;
  };
  std::vector<Block> kept_;
  size_t kept_nbytes_ = 0;
  size_t run_nbytes_ = 0;
};

}  // namespace hardtack::py_binding
