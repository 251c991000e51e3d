// A loaded model for the tests of the core.
#ifndef HARDTACK_SERVER_TESTS_SERVED_H
#define HARDTACK_SERVER_TESTS_SERVED_H

#include <doctest/doctest.h>

#include <future>
#include <thread>

#include "server/core/model_version.h"
#include "server/core/spread.h"
#include "support/samples.h"

namespace hardtack::serve::testing {

namespace samples = hardtack::testing;

using Answer = std::future<Response>;

// Takes far longer than anything else here.
inline samples::Sample long_sample() { return samples::while_sample("long", 20000000, 1); }

// A model with the sample's entry point and "long"; one session, and so one worker thread.
struct Served {
  explicit Served(const samples::Sample& first, const ModelOptions& defaults = {})
      : file(samples::bundle_of({first, long_sample()}).build()) {
    RepositoryOptions options;
    options.defaults = defaults;
    options.defaults.sessions = 1;
    auto loaded = ModelVersion::load("m", 1, file.path(), options, workers, budget, std::make_shared<Statistics>());
    REQUIRE_MESSAGE(loaded.ok(), loaded.error().sentence);
    version = std::move(*loaded);
  }
  ~Served() {
    while (!version->idle()) std::this_thread::yield();
  }

  static Request request(const char* entry, RunHere run_here = RunHere::kNo) {
    Request request;
    request.arrived = Clock::now();
    request.entry = entry;
    request.run_here = run_here;
    request.cancelled = std::make_shared<std::atomic<bool>>(false);
    return request;
  }

  /// Is not started in time, if the worker is held.
  static Request late_request(const char* entry) {
    Request late = request(entry);
    late.deadline = Clock::now() + std::chrono::milliseconds(20);
    return late;
  }

  /// `at_end` runs on the thread that answers, before the answer is there.
  Answer submit(Request&& request, const std::function<void()>& at_end = {}) const {
    auto promise = std::make_shared<std::promise<Response>>();
    Answer answer = promise->get_future();
    version->submit(std::move(request), [promise, at_end](Response&& response) {
      if (at_end) at_end();
      promise->set_value(std::move(response));
    });
    return answer;
  }

  std::size_t num_taken() const {
    const StatisticsSnapshot now = version->statistics();
    return now.running + now.waiting;
  }

  /// Runs "long" on a thread of its own, if the session is free and nobody waits; returns when it runs or waits.
  std::thread start_long(Answer& answer) const {
    const std::size_t before = num_taken();
    const auto over = std::make_shared<std::atomic<bool>>(false);
    std::thread caller([this, over, &answer] {
      answer = submit(request("long", RunHere::kYes));
      *over = true;
    });
    while (num_taken() == before && !*over) std::this_thread::yield();
    return caller;
  }

  samples::TemporaryFile file;
  Workers workers;  // without a pool
  Budget budget{std::uint64_t{1} << 32};
  std::shared_ptr<ModelVersion> version;
};

// The worker thread answers a request until release() is called: the session is free, and what is submitted waits.
class HeldWorker {
 public:
  HeldWorker(const Served& served, const char* entry) : HeldWorker(served, Served::request(entry)) {}
  HeldWorker(const Served& served, Request&& request) {
    std::promise<void> reached;
    answer_ = served.submit(std::move(request), [&reached, until = release_.get_future().share()] {
      reached.set_value();
      until.wait();
    });
    reached.get_future().wait();
  }
  void release() {
    release_.set_value();
    CHECK_FALSE(answer_.get().error);
  }

 private:
  std::promise<void> release_;
  Answer answer_;
};

}  // namespace hardtack::serve::testing

#endif  // HARDTACK_SERVER_TESTS_SERVED_H
