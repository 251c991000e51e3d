// The embedder for many clients at once, over TCP: a line in, a line out, as on a pipe.
#pragma once

#include <cstdint>
#include <string>

#include "embedder.h"

/// Listens on 127.0.0.1 and says where ("listening on 127.0.0.1:PORT"; port 0: one that is free). Answers until the process
/// is ended. Comes back only when something is wrong, and says what.
std::string serve(Embedder& embedder, std::uint16_t port);
