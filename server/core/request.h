// One inference, whatever protocol brought it.
//
// Ownership. A Request is moved into Repository::infer and lives there until its Done has been called. Its inputs are
// views; `keep_alive` holds whatever they point into (the body of an HTTP request, a protobuf message, a block
// of a Budget) and is let go before Done is called or soon after, on any thread. A Response owns the memory of its
// outputs through `memory` and is independent of the model: it may outlive version, repository and request.
//
// Threads. Done is called exactly once for each infer(), with a result or an error: from a worker thread of the model,
// from its timer thread (a deadline), or from the caller's own thread before infer() returns (every refusal
// before queueing; and the result itself with Request::run_here). No lock of the core is held meanwhile. Done must not
// block for long (it holds up a worker), must not throw, and may call infer() again only without run_here.
#ifndef HARDTACK_SERVER_CORE_REQUEST_H
#define HARDTACK_SERVER_CORE_REQUEST_H

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/core/error.h"
#include "server/core/tensor.h"

namespace hardtack::serve {

using Clock = std::chrono::steady_clock;

/// A tensor that the client sent: row-major elements, little-endian, without padding.
struct Input {
  std::string name;
  ht_dtype dtype{};
  Shape shape;
  const void* data = nullptr;  // kept by Request::keep_alive; aligned to the itemsize (serve::aligned)
  std::size_t nbytes = 0;      // must be what dtype and shape say; checked by the core
};

/// States of a model that belong to one conversation; see docs/server.md.
struct Sequence {
  std::string id;  // empty: none; numbers are written in decimal
  bool start = false;
  bool end = false;
  bool number = false;  // what the client sent: 1 and "1" are two sequences
};

/// Whether the model may run on the calling thread, before infer() returns, if a session is idle and nobody waits: saves
/// two thread switches, and blocks the thread for one run.
enum class RunHere {
  kNo,
  kIfShort,  // only what is known to take about as long as the switches, and runs alone in any case
  kYes
};

struct Output;
struct Response;
struct Entry;

/// A request's tensors as its entry point has them.
struct Form {
  std::uint64_t checked_by = 0;  // ModelVersion::number(); 0: nobody has checked it
  const Entry* entry = nullptr;
  std::vector<std::size_t> inputs;   // Request::inputs in the entry's order
  std::vector<std::size_t> outputs;  // of the entry, in the order asked for
  std::int64_t rows = 1;             // of dimension 0 when the entry batches
};

/// How the answer to a request of a sequence is made: one that cannot be made leaves the sequence's states as they were.
struct Delivery {
  /// Before the run, with outputs that have no data yet.
  std::function<Failure(const std::vector<Output>&)> check;
  /// After the run, on the thread that ran.
  std::function<Failure(Response&)> make;
  /// What the outputs hold decides whether make() fails: the states are copied before the run.
  bool may_fail = false;
};

struct Request {
  std::string model;
  std::string version;               // "" means the highest that is ready
  std::string entry;                 // "" means the bundle's default entry point (ModelVersion::default_entry)
  std::string id;                    // given back in the response
  std::vector<Input> inputs;         // in any order
  std::vector<std::string> outputs;  // the names asked for, answered in this order; empty: all, in the model's order
  Sequence sequence;
  std::string owner;            // whose sequences these are: the name of a token; "" for everybody who shows none
  std::uint64_t client = 0;     // tells clients apart that wait for the model: a token, or else a connection
  Clock::time_point arrived{};  // set by who made it: statistics and deadlines count from here
  Clock::time_point deadline = Clock::time_point::max();  // a request not started by then is answered with kDeadline
  /// Set by the protocol when the client has gone: a request that waits is dropped (kCancelled). May be null.
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::shared_ptr<const void> keep_alive;
  std::unique_ptr<Delivery> delivery;  // null: what is done with the response is nobody's concern
  RunHere run_here = RunHere::kNo;
  /// By Repository::check: what was checked is not changed behind it, save for the inputs' data.
  Form form;
};

/// The id that the client gave the request. kInvalid for one that is too long: it is copied from place to place, and not
/// counted.
Failure set_id(Request& request, std::string id);

/// A parameter of a request as JSON or protobuf carry it.
using Parameter = std::variant<bool, std::int64_t, double, std::string>;

/// Applies one request-level parameter: `timeout` (microseconds from `arrived`), `sequence_id` (number or text),
/// `sequence_start`, `sequence_end`, `entry`. Others are no concern of the core and are accepted (`priority`, tracing
/// ids, the protocols' own). kInvalid with a sentence when the value has the wrong type.
Failure apply_parameter(Request& request, std::string_view name, const Parameter& value);

/// A tensor of the answer; row-major, in memory that the Response owns, aligned to 64 bytes.
struct Output {
  std::string name;
  ht_dtype dtype{};
  Shape shape;
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
};

struct Response {
  std::string model;
  std::string version;  // the version that ran, also when the request named none
  std::string id;
  Failure error;  // set: no outputs
  std::vector<Output> outputs;
  std::shared_ptr<const std::byte> memory;  // what the outputs point into
};

using Done = std::function<void(Response&&)>;

/// Calls `done`. It throws nothing, as said above; one that runs out of memory nevertheless has given up its own client, and
/// no other.
void tell(const Done& done, Response&& response) noexcept;

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_REQUEST_H
