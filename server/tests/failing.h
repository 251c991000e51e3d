// Allocations that fail, on all threads of the program.
#ifndef HARDTACK_SERVER_TESTS_FAILING_H
#define HARDTACK_SERVER_TESTS_FAILING_H

#include <functional>

namespace hardtack::serve::testing {

// While it lives, allocation number `good` fails, counted from 0, or that and all behind it.
class Failing {
 public:
  Failing(long good, bool rest);
  ~Failing();
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
  /// Whether there were so many.
  static bool came();
};

// Calls `turn`, which says whether it came so far, with the first allocation failing, then the second, ... until there are no
// more; then again with all behind it failing, too.
void with_each_failing(const std::function<bool(long good, bool rest)>& turn);

}  // namespace hardtack::serve::testing

#endif  // HARDTACK_SERVER_TESTS_FAILING_H
