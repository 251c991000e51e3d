// The functions that the program has registered for ops of bundles (ht_register_op): one table for the process.
#pragma once

#include <hardtack/hardtack.h>

#include "manifest.h"
#include "status.h"

namespace hardtack::rt {

/// Of a version of hardtack/kernel.h that this library knows; the same function under its name again is fine.
Status register_host_kernel(const char* name, uint32_t abi_version, const HtHostKernel& kernel);

/// What is registered under a name; `fn` null: nothing.
HtHostKernel find_host_kernel(const char* name);

/// An error that names all functions that the manifest's ops need and nobody has registered.
Status check_registered(const Manifest& manifest);

}  // namespace hardtack::rt
