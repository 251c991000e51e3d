#include <doctest/doctest.h>

#include "server/core/statistics.h"

using namespace hardtack::serve;

TEST_CASE("clients cannot make the statistics grow without end") {
  Statistics statistics;
  for (std::int64_t rows = 1; rows <= 3000; ++rows) statistics.ran({rows, 1, 2, 3});
  statistics.ran({7, 1, 2, 3});
  const StatisticsSnapshot all = statistics.snapshot();
  CHECK(all.execution_count == 3001);
  CHECK(all.batches.size() == kMostBatchSizes);
  CHECK(all.batches.at(7).compute_infer.count == 2);
}
