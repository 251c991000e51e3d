// How many threads the server's defaults are made for.
#pragma once

namespace hardtack::serve {

// CPUs that this process may use at a time, by its affinity and its CPU quota; at least 1.
int usable_cpus();

}  // namespace hardtack::serve
