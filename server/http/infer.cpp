#include "server/http/infer.h"

#include <algorithm>
#include <thread>

#include "server/core/input_memory.h"
#include "server/core/protocol.h"
#include "server/http/compression.h"
#include "server/http/infer_json.h"

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kSmallestCompressed = 1024;  // below, a compressed reply gains nothing

// How one output goes to the client.
struct Delivered {
  std::string name;
  bool binary = false;
  bool in_region = false;
  Placement place;
};

struct Plan {
  Delivered others;                // outputs that were not named
  std::vector<Delivered> outputs;  // those asked for; empty: all, as `others`
  const char* encoding = nullptr;

  const Delivered& of(std::size_t output) const { return outputs.empty() ? others : outputs[output]; }
  // JSON does not have all numbers, and a region may become shorter while the model runs.
  bool may_fail() const {
    return !others.binary || std::any_of(outputs.begin(), outputs.end(),
                                         [](const Delivered& one) { return !one.binary || one.in_region; });
  }
};

Error invalid(std::string sentence) { return {Code::kInvalid, std::move(sentence)}; }

const Parameter* find(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr : &found->second;
}

Outcome<bool> flag(const Parameters& parameters, const char* name, bool otherwise) {
  const Parameter* value = find(parameters, name);
  if (value == nullptr) return otherwise;
  if (const bool* set = std::get_if<bool>(value)) return *set;
  return invalid("parameter \"" + std::string(name) + "\" must be true or false");
}

Outcome<Placement> placement(const std::string& which, const std::string& owner, const Parameters& parameters) {
  return placement_of(which, owner, [&](const char* name) {
    const Parameter* value = find(parameters, name);
    return value == nullptr ? std::nullopt : std::optional<Parameter>(*value);
  });
}

// First what the request says (form), then what it holds (data): nothing is copied for a request that is refused.
class RequestMaker {
 public:
  RequestMaker(const HttpRequest& http, const InferRoom& room, std::size_t json_nbytes)
      : http_(http),
        shared_(room.shared),
        next_(json_nbytes),
        budget_(room.repository.budget()),
        memory_(std::make_shared<InputMemory>(http.owner, budget_)) {}

  Failure form(InferJson& json, Request& request, Plan& plan) {
    if (Failure wrong = set_id(request, std::move(json.id))) return wrong;
    request.arrived = http_.arrived;
    request.cancelled = http_.cancelled;
    request.client = http_.client();
    request.owner = http_.caller.name;
    request.run_here = http_.run_here;
    for (const auto& [name, value] : json.parameters) {
      if (Failure wrong = apply_parameter(request, name, value)) return wrong;
    }
    auto binary = flag(json.parameters, "binary_data_output", false);
    if (!binary.ok()) return binary.error();
    plan.others.binary = *binary;
    if (!json.has_inputs) return invalid("the request has no \"inputs\"");
    for (const JsonInput& input : json.inputs) {
      if (Failure wrong = add_input(input, request)) return wrong;
    }
    for (JsonOutput& output : json.outputs) {
      if (Failure wrong = add_output(output, request, plan)) return wrong;
    }
    return std::nullopt;
  }

  /// Bytes that data() will copy out of shared memory.
  std::size_t shared_nbytes() const {
    std::size_t sum = 0;
    for (const Placement& place : places_) sum += place.nbytes;
    return sum;
  }

  Failure data(InferJson& json, Request& request) {
    for (std::size_t i = 0; i < json.inputs.size(); ++i) {
      if (Failure wrong = take_data(json.inputs[i], places_[i], request.inputs[i])) return wrong;
    }
    if (next_ != http_.body_nbytes) {
      return invalid("the body has " + std::to_string(http_.body_nbytes - next_) +
                     " bytes after what the inputs' binary_data_size and the JSON account for");
    }
    return std::nullopt;
  }

  /// What the inputs point into, which the maker has no more.
  std::shared_ptr<const void> take_memory() { return std::move(memory_); }

 private:
  Failure add_input(const JsonInput& json, Request& request) {
    const std::string which = input_named(json.name);
    if (json.name.empty()) return invalid("an input has no name");
    if (json.datatype.empty()) return invalid(which + " has no datatype");
    if (!json.has_shape) return invalid(which + " has no shape");
    auto dtype = input_dtype(json.name, json.datatype);
    if (!dtype.ok()) return dtype.error();
    auto place = placement(which, request.owner, json.parameters);
    if (!place.ok()) return place.error();
    const bool binary = find(json.parameters, "binary_data_size") != nullptr;
    if (json.data.present + binary + !place->region.empty() != 1) {
      return invalid(which + " must have exactly one of \"data\", the parameter binary_data_size and shared memory");
    }
    auto input = make_input(json.name, *dtype, json.shape, *place);
    if (!input.ok()) return input.error();
    request.inputs.push_back(std::move(*input));
    places_.push_back(std::move(*place));
    return std::nullopt;
  }

  Failure take_data(JsonInput& json, const Placement& place, Input& input) {
    if (json.data.present) {
      auto elements = to_elements(json, input.dtype, budget_);
      if (!elements.ok()) return elements.error();
      json.data = JsonData{};  // it is counted until the request is made, and takes no memory from here on
      memory_->hold(input, elements->memory, elements->nbytes);
      return std::nullopt;
    }
    if (place.region.empty()) return take_binary(input_named(json.name), json, input);
    auto block = shared_.read(place, budget_);
    if (!block.ok()) return block.error();
    memory_->hold(input, *block, place.nbytes);
    return std::nullopt;
  }

  // The next bytes of the body.
  Failure take_binary(const std::string& which, const JsonInput& json, Input& input) {
    auto nbytes = size_parameter(which, "binary_data_size", json.parameters.at("binary_data_size"));
    if (!nbytes.ok()) return nbytes.error();
    if (*nbytes > http_.body_nbytes - next_) {
      return invalid(which + " has binary_data_size " + std::to_string(*nbytes) + ", but only " +
                     std::to_string(http_.body_nbytes - next_) + " bytes of the body are left");
    }
    const std::byte* start = http_.body + next_;
    next_ += *nbytes;
    return memory_->use(input, start, *nbytes);
  }

  Failure add_output(JsonOutput& json, Request& request, Plan& plan) {
    if (json.name.empty()) return invalid("an output has no name");
    for (const auto& [name, value] : json.parameters) {
      if (Failure wrong = check_output_parameter(json.name, name)) return wrong;
    }
    auto binary = flag(json.parameters, "binary_data", plan.others.binary);
    if (!binary.ok()) return binary.error();
    auto place = placement(output_named(json.name), request.owner, json.parameters);
    if (!place.ok()) return place.error();
    Delivered delivery{json.name, *binary, !place->region.empty(), *place};
    if (delivery.in_region) {
      if (Failure wrong = shared_.check(delivery.place)) return wrong;
    }
    request.outputs.push_back(std::move(json.name));
    plan.outputs.push_back(std::move(delivery));
    return std::nullopt;
  }

  const HttpRequest& http_;
  const SharedMemory& shared_;
  std::size_t next_;
  Budget& budget_;
  std::shared_ptr<InputMemory> memory_;
  std::vector<Placement> places_;  // of the inputs; an empty region: not in shared memory
};

Failure append_output(HttpReply& reply, const Output& output, const Delivered& delivery, const SharedMemory& shared) {
  std::string& text = reply.text;
  text += "{\"name\":";
  append_json_string(text, output.name);
  ((text += ",\"datatype\":\"") += protocol_name(output.dtype)) += "\",\"shape\":";
  text += to_text(output.shape);
  if (delivery.in_region) {
    if (Failure failed = shared.write(delivery.place, output.data, output.nbytes)) return failed;
    text += ",\"parameters\":{\"shared_memory_region\":";
    append_json_string(text, delivery.place.region);
    if (delivery.place.offset > 0) text += ",\"shared_memory_offset\":" + std::to_string(delivery.place.offset);
    text += ",\"shared_memory_byte_size\":" + std::to_string(output.nbytes) + "}";
  } else if (delivery.binary) {
    text += ",\"parameters\":{\"binary_data_size\":" + std::to_string(output.nbytes) + "}";
    if (output.nbytes > 0) reply.parts.push_back({output.data, output.nbytes});
    reply.has_json_length = true;
  } else {
    text += ",\"data\":";
    if (Failure failed = append_elements(text, output, reply.share)) return failed;
  }
  text += '}';
  return std::nullopt;
}

// The outputs as the client wants them; the error of the response is another's concern.
Outcome<HttpReply> reply_for(Response& response, const Plan& plan, const InferRoom& room) {
  HttpReply reply;
  reply.share = Share(room.repository.budget());
  std::string& text = reply.text;
  text.reserve(256);
  text += "{\"model_name\":";
  append_json_string(text, response.model);
  ((text += ",\"model_version\":\"") += response.version) += '"';
  if (!response.id.empty()) append_json_string(text += ",\"id\":", response.id);
  text += ",\"outputs\":[";
  for (std::size_t i = 0; i < response.outputs.size(); ++i) {
    if (i > 0) text += ',';
    if (Failure failed = append_output(reply, response.outputs[i], plan.of(i), room.shared)) return *failed;
  }
  text += "]}";
  reply.json_nbytes = text.size();
  if (reply.has_json_length) reply.content_type = "application/octet-stream";
  reply.owner = response.memory;
  if (plan.encoding != nullptr && reply.body_nbytes() >= kSmallestCompressed) {
    compress(reply, plan.encoding, room.repository.budget());
  }
  return reply;
}

HttpReply reply_or_error(Response& response, const Plan& plan, const InferRoom& room) noexcept try {
  if (response.error) return error_reply(*response.error);
  auto reply = reply_for(response, plan, room);
  return reply.ok() ? std::move(*reply) : error_reply(reply.error());
} catch (...) {
  return error_reply(from_exception());
}

// What can be known to fail before the run.
Failure check_delivery(const std::vector<Output>& outputs, const Plan& plan, const SharedMemory& shared) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Delivered& how = plan.of(i);
    if (!how.in_region && how.binary) continue;
    Failure wrong = how.in_region ? shared.check(how.place, outputs[i].nbytes) : check_json_type(outputs[i]);
    if (wrong) return wrong;
  }
  return std::nullopt;
}

// The bytes of the JSON part as the header says; kInvalid for a header that is no such number.
Outcome<std::size_t> json_length(const std::string& header) {
  const bool digits = header.size() <= 18 && header.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) return invalid("the header Inference-Header-Content-Length must be a whole number");
  return static_cast<std::size_t>(std::stoull(header));
}

// A request on its way, from its body to its reply: one block of memory for all of it.
struct Asked {
  Asked(HttpRequest&& http_, Reply&& reply_, InferJson&& json_, const InferRoom& room_, std::size_t json_nbytes)
      : http(std::move(http_)),
        reply(std::move(reply_)),
        json(std::move(json_)),
        room(room_),
        maker(http, room, json_nbytes) {}

  HttpRequest http;
  Reply reply;
  InferJson json;
  const InferRoom room;
  const std::thread::id came_on = std::this_thread::get_id();
  RequestMaker maker;
  Request request;
  Plan plan;
  HttpReply made;  // of a sequence, before its states move on
};

// A reply that is made before the states of a sequence move on.
std::unique_ptr<Delivery> delivery_of(const std::shared_ptr<Asked>& asked) {
  auto delivery = std::make_unique<Delivery>();
  delivery->check = [asked](const std::vector<Output>& outputs) {
    return check_delivery(outputs, asked->plan, asked->room.shared);
  };
  delivery->make = [asked](Response& response) -> Failure {
    auto reply = reply_for(response, asked->plan, asked->room);
    if (!reply.ok()) return reply.error();
    asked->made = std::move(*reply);
    return std::nullopt;
  };
  delivery->may_fail = asked->plan.may_fail();
  return delivery;
}

// Numbers as text and compressed bytes take microseconds a KiB; bytes as they are take none.
bool takes_long(const Response& response, const Plan& plan) {
  constexpr std::size_t kMost = 8U << 10;
  std::size_t nbytes = 0;
  for (std::size_t i = 0; i < response.outputs.size(); ++i) {
    const Delivered& how = plan.of(i);
    if (!how.in_region && (!how.binary || plan.encoding != nullptr)) nbytes += response.outputs[i].nbytes;
  }
  return nbytes > kMost;
}

// Makes the reply where it holds up no connection: not on the io thread that the request came on and was run on.
void deliver(const std::shared_ptr<Asked>& asked, Response&& response) {
  const bool here = asked->http.on_io_thread && asked->came_on == std::this_thread::get_id();
  if (!here || response.error || !takes_long(response, asked->plan)) {
    return asked->reply(reply_or_error(response, asked->plan, asked->room));
  }
  try {
    asked->room.parsing.post(asked->http.client(), [asked, run = std::make_shared<Response>(std::move(response))] {
      asked->reply(reply_or_error(*run, asked->plan, asked->room));
    });
  } catch (...) {
    asked->reply(error_reply(from_exception()));
  }
}

// Copies what is to be copied, and hands the request over.
void take_and_run(const std::shared_ptr<Asked>& asked) {
  Repository& repository = asked->room.repository;
  if (Failure wrong = asked->maker.data(asked->json, asked->request)) {
    return asked->reply(error_reply(repository.why_refused(asked->request, *wrong)));
  }
  asked->json = InferJson();
  asked->http.owner.reset();
  const bool early = !asked->request.sequence.id.empty();
  if (early) asked->request.delivery = delivery_of(asked);
  Request request = std::move(asked->request);
  request.keep_alive = asked->maker.take_memory();
  repository.infer(std::move(request), [asked, early](Response&& response) {
    if (!early || response.error) return deliver(asked, std::move(response));
    asked->reply(std::move(asked->made));
  });
}

Outcome<std::size_t> inflated_json_length(HttpRequest& http, const InferRoom& room) {
  std::size_t json_nbytes = 0;
  if (!http.json_length.empty()) {
    auto length = json_length(http.json_length);
    if (!length.ok()) return length.error();
    json_nbytes = *length;
  }
  if (Failure wrong = decompress(http, json_nbytes, room.max_body, room.repository.budget())) return *wrong;
  if (http.json_length.empty()) return http.body_nbytes;
  if (json_nbytes <= http.body_nbytes) return json_nbytes;
  return invalid("Inference-Header-Content-Length is " + std::to_string(json_nbytes) + ", the body has " +
                 std::to_string(http.body_nbytes) + " bytes");
}

}  // namespace

void infer(const InferRoom& room, const std::string& model, const std::string& version, HttpRequest&& http,
           Reply&& reply) {
  constexpr std::size_t kMostCopied = std::size_t{1} << 20;
  auto json_nbytes = inflated_json_length(http, room);
  if (!json_nbytes.ok()) return reply(error_reply(json_nbytes.error()));
  auto json = read_infer_json(http.text().substr(0, *json_nbytes), room.repository.budget());
  if (!json.ok()) return reply(error_reply(json.error()));
  const auto asked = std::make_shared<Asked>(std::move(http), std::move(reply), std::move(*json), room, *json_nbytes);
  asked->request.model = model;
  asked->request.version = version;
  asked->plan.encoding = accepted_encoding(asked->http.accept_encoding);
  Failure wrong = asked->maker.form(asked->json, asked->request, asked->plan);
  wrong = wrong ? room.repository.why_refused(asked->request, *wrong) : room.repository.check(asked->request);
  if (wrong) return asked->reply(error_reply(*wrong));
  if (!asked->http.on_io_thread || asked->maker.shared_nbytes() <= kMostCopied) return take_and_run(asked);
  asked->request.run_here = RunHere::kNo;
  room.parsing.post(asked->http.client(), [asked] {
    try {
      take_and_run(asked);
    } catch (...) {
      asked->reply(error_reply(from_exception()));
    }
  });
}

}  // namespace hardtack::serve::http
