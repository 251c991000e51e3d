// Where an allocation fails, whichever it is, each request is answered once and each session given back.
#include "server/tests/failing.h"
#include "server/tests/served.h"

using namespace hardtack::serve;
using namespace hardtack::serve::testing;

namespace {

// What a test needs to ask, made before allocations fail.
struct Asked {
  explicit Asked(Request&& asked) : request(std::move(asked)) {
    auto promise = std::make_shared<std::promise<Response>>();
    answer = promise->get_future();
    done = [promise](Response&& response) { promise->set_value(std::move(response)); };
  }
  void submit(const Served& served) { served.version->submit(std::move(request), std::move(done)); }

  Request request;
  Done done;
  Answer answer;
};

Request count(const char* sequence, bool start, RunHere run_here = RunHere::kYes) {
  Request request = Served::request("count", run_here);
  request.id = "an id that does not lie in the string itself";
  request.sequence = {sequence, start, false};
  return request;
}

std::int64_t counted(const Response& response) {
  REQUIRE_MESSAGE(!response.error, response.error->sentence);
  std::int64_t n = 0;
  std::memcpy(&n, response.outputs[0].data, sizeof n);
  return n;
}

bool fine(const Response& response) { return !response.error || response.error->code == Code::kNoMemory; }

Request add_request() {
  static const float kData[3] = {1, 2, 3};
  Request request = Served::request("forward");
  for (const char* name : {"x", "y"}) request.inputs.push_back({name, {2, 32, 1}, {1, 3}, kData, sizeof kData});
  return request;
}

}  // namespace

TEST_CASE("without memory a request is answered, and what other sequences have counted stays") {
  const Served served(samples::count_sample());
  std::uint64_t requests = 0;
  for (const RunHere where : {RunHere::kYes, RunHere::kNo}) {
    with_each_failing([&](long good, bool rest) {
      CHECK(counted(served.submit(count("a", true)).get()) == 1);
      Asked asked(count("b", true, where));
      asked.request.client = 7;
      bool came = false;
      {
        const Failing failing(good, rest);
        asked.submit(served);
        const Response response = asked.answer.get();
        came = Failing::came();
        CHECK(fine(response));
      }
      CHECK(counted(served.submit(count("a", false)).get()) == 2);
      for (const char* name : {"a", "b"}) {
        Request last = count(name, true);
        last.sequence.end = true;
        CHECK(counted(served.submit(std::move(last)).get()) == 1);
      }
      while (served.num_taken() > 0) std::this_thread::yield();
      CHECK(served.version->statistics().sequences == 0);
      CHECK(served.version->statistics().clients == 0);
      requests += 5;
      return came;
    });
  }
  const StatisticsSnapshot all = served.version->statistics();
  CHECK(all.success.count + all.fail.count == requests);
}

TEST_CASE("without memory each request of a batch is answered") {
  ModelOptions options;
  options.max_batch = 8;
  const Served served(samples::add_sample(), options);
  with_each_failing([&](long good, bool rest) {
    HeldWorker worker(served, add_request());
    std::vector<Asked> asked;
    asked.reserve(3);
    for (int i = 0; i < 3; ++i) asked.emplace_back(add_request());
    for (Asked& one : asked) one.submit(served);
    bool came = false;
    {
      const Failing failing(good, rest);
      worker.release();
      for (Asked& one : asked) CHECK(fine(one.answer.get()));
      came = Failing::came();
    }
    CHECK_FALSE(served.submit(add_request()).get().error);
    return came;
  });
}

TEST_CASE("without memory a request that is late is answered") {
  const Served served(samples::while_sample());
  with_each_failing([&](long good, bool rest) {
    HeldWorker worker(served, "loop");
    Asked late(Served::late_request("loop"));
    bool came = false;
    {
      const Failing failing(good, rest);
      late.submit(served);
      const Response response = late.answer.get();
      came = Failing::came();
      CHECK(response.error);
    }
    worker.release();
    return came;
  });
}

TEST_CASE("without memory a model does not load, and says so") {
  const samples::TemporaryFile file(samples::bundle_of({samples::count_sample(), samples::while_sample()}).build());
  const auto statistics = std::make_shared<Statistics>();
  Workers workers;
  Budget budget(std::uint64_t{1} << 32);
  for (const bool rest : {false, true}) {
    bool came = true;
    for (long good = 0; came; good += 1 + good / 16) {
      const Failing failing(good, rest);
      const auto loaded = ModelVersion::load("m", 1, file.path(), {}, workers, budget, statistics);
      came = Failing::came();
      if (came && !loaded.ok()) CHECK(loaded.error().sentence.size() > 8);
    }
  }
}
