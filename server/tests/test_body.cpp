#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/body.h"

using namespace hardtack::serve;
using hardtack::serve::http::Body;

namespace {

bool is_in_place(const Body& body, std::size_t lead) {
  return reinterpret_cast<std::uintptr_t>(body.data() + lead) % kAlignment == 0;
}

}  // namespace

TEST_CASE("tensors behind the JSON part of a body lie on lines of the cache, whether its size is known or not") {
  Budget budget(1U << 30);
  for (std::size_t lead = 0; lead < 200; ++lead) {
    for (const std::size_t nbytes : {lead, lead + 1, lead + 4096, lead + (1U << 20)}) {
      const std::string bytes(nbytes, 'x');
      Body known(budget, lead), grown(budget, lead);
      REQUIRE((known.reserve(nbytes) && known.count_to(nbytes)));
      CHECK(is_in_place(known, lead));
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(known.data()));
      for (std::size_t at = 0; at < nbytes; at += 70'000) {
        REQUIRE(grown.append(bytes.data() + at, std::min<std::size_t>(70'000, nbytes - at)));
        CHECK(is_in_place(grown, lead));
      }
      REQUIRE(grown.size() == nbytes);
      CHECK((nbytes == 0 || std::string_view(reinterpret_cast<char*>(grown.data()), nbytes) == bytes));
    }
  }
  CHECK(budget.used() == 0);
}
