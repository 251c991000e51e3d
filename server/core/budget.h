// One count of the bytes that this process holds for its clients, and the most that it may hold.
//
// What a client decides the size of is counted before it is there: bodies and messages, inflated and parsed forms, inputs
// and outputs, states, what sessions hold. What is over the budget is refused in words, so that the system never has to end
// the process. Weights are counted, too, and never refused. Safe from any thread; must outlive everything that is counted.
#ifndef HARDTACK_SERVER_CORE_BUDGET_H
#define HARDTACK_SERVER_CORE_BUDGET_H

#include <hardtack/hardtack.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "server/core/error.h"

namespace hardtack::serve {

class Budget {
 public:
  /// What memory costs that is asked for and not written.
  enum class Unwritten { kFree, kCounted };

  explicit Budget(std::uint64_t limit, Unwritten unwritten = Unwritten::kFree) : limit_(limit), unwritten_(unwritten) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// How much of the budget something may have.
  enum class Part {
    kAll,
    kHalf  // of what is not charged: the rest is left to others, however long a client holds it
  };

  /// Counts so many bytes more; false, and nothing is counted, where they do not fit.
  bool take(std::uint64_t nbytes, Part part = Part::kAll) noexcept;
  void give(std::uint64_t nbytes) noexcept { used_ -= nbytes; }
  /// Counts what is there whether it fits or not, and stays as a rule.
  void charge(std::uint64_t nbytes) noexcept { used_ += nbytes, charged_ += nbytes; }
  void discharge(std::uint64_t nbytes) noexcept { used_ -= nbytes, charged_ -= nbytes; }

  /// Memory that is counted while it lives, aligned to 64 bytes, not initialised; null when there is none. Freed with the
  /// last copy.
  std::shared_ptr<std::byte> allocate(std::size_t nbytes) noexcept;
  /// The same for the sessions of a model on the CPU.
  ht_allocator allocator() noexcept;

  /// Whether so many bytes fit when nothing else is counted.
  bool may_fit(std::uint64_t nbytes, Part part = Part::kAll) const { return nbytes <= share_of(part, limit_); }
  /// What a client is told: kTooLarge for what never fits, else kNoMemory. `what`: "the body".
  Error refusal(const std::string& what, std::uint64_t nbytes, Part part = Part::kAll) const;

  std::uint64_t limit() const { return limit_; }
  Unwritten unwritten() const { return unwritten_; }
  std::uint64_t used() const { return used_; }
  /// How often something did not fit.
  std::uint64_t refused() const { return refused_; }

 private:
  static std::uint64_t share_of(Part part, std::uint64_t nbytes) { return part == Part::kAll ? nbytes : nbytes / 2; }
  std::uint64_t most(Part part) const noexcept;
  const std::uint64_t limit_;
  const Unwritten unwritten_;
  std::atomic<std::uint64_t> used_{0}, charged_{0}, refused_{0};
};

/// Bytes that are counted as long as this lives.
class Share {
 public:
  Share() = default;
  explicit Share(Budget& budget) : budget_(&budget) {}
  Share(Share&& other) noexcept
      : budget_(other.budget_),
        nbytes_(std::exchange(other.nbytes_, 0)),
        charged_nbytes_(std::exchange(other.charged_nbytes_, 0)) {}
  Share& operator=(Share&& other) noexcept {
    if (this == &other) return *this;
    clear();
    budget_ = other.budget_;
    nbytes_ = std::exchange(other.nbytes_, 0);
    charged_nbytes_ = std::exchange(other.charged_nbytes_, 0);
    return *this;
  }
  ~Share() { clear(); }

  /// Counts so many more; false: they do not fit.
  bool grow(std::uint64_t nbytes, Budget::Part part = Budget::Part::kAll) noexcept {
    if (budget_ == nullptr || !budget_->take(nbytes, part)) return false;
    nbytes_ += nbytes;
    return true;
  }
  /// Counts so many in all.
  bool grow_to(std::uint64_t nbytes, Budget::Part part = Budget::Part::kAll) noexcept {
    return nbytes <= nbytes_ || grow(nbytes - nbytes_, part);
  }
  /// Counts so many less; there must be as many.
  void shrink(std::uint64_t nbytes) noexcept {
    budget_->give(nbytes);
    nbytes_ -= nbytes;
  }
  /// Counts so many more, whether they fit or not: Budget::charge.
  void charge(std::uint64_t nbytes) noexcept {
    budget_->charge(nbytes);
    charged_nbytes_ += nbytes;
  }
  void clear() noexcept {
    if (nbytes_ > 0) budget_->give(std::exchange(nbytes_, 0));
    if (charged_nbytes_ > 0) budget_->discharge(std::exchange(charged_nbytes_, 0));
  }
  std::uint64_t nbytes() const { return nbytes_ + charged_nbytes_; }
  Budget* budget() const { return budget_; }

 private:
  Budget* budget_ = nullptr;
  std::uint64_t nbytes_ = 0, charged_nbytes_ = 0;
};

/// Where a process learns how much memory it may have; tests name other files.
struct MemoryFiles {
  std::string groups = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

/// The least of the limits of this process's control groups (version 2 and 1), of its address space, and of the machine.
std::uint64_t memory_limit(const MemoryFiles& files = {});

/// Whether this process has a limit of addresses (RLIMIT_AS), which also what nobody writes takes of.
bool addresses_are_limited();

/// What of such a limit is left for what a Budget counts: the rest is for the program itself, its threads and connections.
std::uint64_t budget_within(std::uint64_t limit);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_BUDGET_H
