#include "server/core/pending.h"
#include "server/tests/served.h"

using namespace hardtack::serve;
using namespace hardtack::serve::testing;

namespace {

Code code_of(Answer& answer) {
  const Response response = answer.get();
  return response.error ? response.error->code : Code::kInternal;
}

}  // namespace

TEST_CASE("a run without an end is stopped, and its session serves on") {
  ModelOptions options;
  options.max_run = std::chrono::milliseconds(30);
  const Served served(samples::while_sample("ages", std::int64_t{1} << 62, 1), options);
  for (const RunHere where : {RunHere::kNo, RunHere::kYes}) {
    Response stopped = served.submit(Served::request("ages", where)).get();
    REQUIRE(stopped.error);
    CHECK(stopped.error->code == Code::kRunLimit);
    CHECK(stopped.error->sentence ==
          "the run of entry point \"ages\" of model \"m\" was stopped after 30 ms, which is as long as a run may take "
          "here (--max-run-ms)");
    CHECK(served.version->statistics().stuck == 0);
  }
  while (!served.version->idle()) std::this_thread::yield();
}

TEST_CASE("a session that is taken while refusals are answered is not taken twice") {
  const Served served(samples::while_sample());
  HeldWorker worker(served, "loop");
  Request request = Served::request("loop");
  const auto cancelled = request.cancelled;
  Answer longer;
  std::thread caller;
  Answer gone = served.submit(std::move(request), [&] { caller = served.start_long(longer); });
  Answer stays = served.submit(Served::request("loop"));
  // The watching thread has looked then and will not before long: the worker finds that the client is gone, and has waited.
  std::this_thread::sleep_for(Pending::kGrace + std::chrono::milliseconds(20));
  *cancelled = true;
  worker.release();
  CHECK(code_of(gone) == Code::kCancelled);
  CHECK_FALSE(stays.get().error);
  caller.join();
  CHECK_FALSE(longer.get().error);
}

TEST_CASE("who makes room in a full queue answers for those that leave it") {
  ModelOptions options;
  options.max_queue = 0;
  const Served served(samples::while_sample(), options);
  HeldWorker worker(served, "loop");
  Request request = Served::request("loop");
  const auto cancelled = request.cancelled;
  Answer gone = served.submit(std::move(request));
  *cancelled = true;
  Answer next = served.submit(Served::request("loop", RunHere::kYes));
  worker.release();
  CHECK(code_of(gone) == Code::kCancelled);
  CHECK_FALSE(next.get().error);
}

TEST_CASE("a sequence is not forgotten while the session that holds its states runs") {
  ModelOptions options;
  options.sequence_idle = std::chrono::seconds(0);
  const Served served(samples::count_sample(), options);
  HeldWorker worker(served, "count");
  // The watching thread forgets idle sequences before it answers this one, and sleeps after it.
  Answer early = served.submit(Served::late_request("count"));
  CHECK(code_of(early) == Code::kDeadline);
  while (served.num_taken() > 1) std::this_thread::yield();  // but for what the worker answers
  Request request = Served::request("count", RunHere::kYes);
  request.sequence = {"s", true, false};
  CHECK_FALSE(served.submit(std::move(request)).get().error);
  Answer longer;
  std::thread caller = served.start_long(longer);
  std::size_t sequences = 0;
  Answer late =
      served.submit(Served::late_request("count"), [&] { sequences = served.version->statistics().sequences; });
  CHECK(code_of(late) == Code::kDeadline);
  CHECK(sequences == 1);
  worker.release();
  caller.join();
  CHECK_FALSE(longer.get().error);
}

TEST_CASE("a request that is refused displaces nobody") {
  ModelOptions options;
  options.max_queue = 2;
  const Served served(samples::count_sample(), options);
  HeldWorker worker(served, "count");
  const auto ask = [&](std::uint64_t client, bool start) {
    Request request = Served::request("count");
    request.client = client;
    if (client != 1) request.sequence = {"s", start, false};
    return served.submit(std::move(request));
  };
  std::vector<Answer> many;
  many.reserve(3);
  for (int i = 0; i < 3; ++i) many.push_back(ask(1, false));  // as many as may wait while a session is free
  Answer unknown = ask(2, false);
  CHECK(code_of(unknown) == Code::kInvalid);
  const StatisticsSnapshot now = served.version->statistics();
  CHECK((now.waiting == 3 && now.clients == 1));
  Answer good = ask(2, true);
  CHECK(code_of(many.back()) == Code::kQueueFull);
  CHECK(served.version->statistics().clients == 2);
  worker.release();
  CHECK_FALSE(good.get().error);
  CHECK_FALSE(many[0].get().error);
  CHECK_FALSE(many[1].get().error);
}

TEST_CASE("what one version has checked another checks again") {
  const Served before(samples::count_sample()), after(samples::while_sample("loop"));
  Request request = Served::request("count");
  request.sequence = {"s", true, false};
  REQUIRE_FALSE(before.version->check(request));
  Request copy = Served::request("count");
  copy.form = request.form;
  Response refused = after.submit(std::move(copy)).get();
  REQUIRE(refused.error);
  CHECK(refused.error->sentence.find("has no entry point \"count\"") != std::string::npos);
  CHECK_FALSE(before.submit(std::move(request)).get().error);
}
