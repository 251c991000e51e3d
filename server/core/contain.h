// What goes on for as long as the process does must not end for want of memory.
#ifndef HARDTACK_SERVER_CORE_CONTAIN_H
#define HARDTACK_SERVER_CORE_CONTAIN_H

#include <string_view>

#include "server/core/log.h"

namespace hardtack::serve {

/// Calls `step`. What it throws goes no further: it is counted and told of. False: it threw.
template <typename Step>
bool contain(Log& log, std::string_view what, Step&& step) noexcept {
  try {
    step();
    return true;
  } catch (...) {
    log.caught(what);
    return false;
  }
}

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_CONTAIN_H
