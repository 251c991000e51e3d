#include "server/core/cpus.h"

#include <hardtack/hardtack.h>

namespace hardtack::serve {

int usable_cpus() { return ht_usable_cpus(); }

}  // namespace hardtack::serve
