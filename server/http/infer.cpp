#include "server/http/infer.h"

#include <algorithm>
#include <new>

#include "server/core/input_memory.h"
#include "server/core/protocol.h"
#include "server/http/compression.h"
#include "server/http/infer_json.h"

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kSmallestCompressed = 1024;  // below, a compressed reply gains nothing

// How one output goes to the client.
struct Delivery {
  std::string name;
  bool binary = false;
  bool in_region = false;
  Placement place;
};

struct Plan {
  bool binary_by_default = false;
  std::vector<Delivery> outputs;  // those asked for; empty: all, as the default says
  const char* encoding = nullptr;
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

Outcome<Placement> placement(const std::string& which, const Parameters& parameters) {
  return placement_of(which, [&](const char* name) {
    const Parameter* value = find(parameters, name);
    return value == nullptr ? std::nullopt : std::optional<Parameter>(*value);
  });
}

class RequestMaker {
 public:
  RequestMaker(const HttpRequest& http, const SharedMemory& shared, std::size_t json_nbytes)
      : http_(http), shared_(shared), next_(json_nbytes) {}

  Failure make(InferJson&& json, Request& request, Plan& plan) {
    request.id = std::move(json.id);
    request.arrived = http_.arrived;
    request.cancelled = http_.cancelled;
    request.run_here = http_.run_here;
    for (const auto& [name, value] : json.parameters) {
      if (Failure wrong = apply_parameter(request, name, value)) return wrong;
    }
    auto binary = flag(json.parameters, "binary_data_output", false);
    if (!binary.ok()) return binary.error();
    plan.binary_by_default = *binary;
    if (!json.has_inputs) return invalid("the request has no \"inputs\"");
    for (JsonInput& input : json.inputs) {
      if (Failure wrong = add_input(input, request)) return wrong;
    }
    if (next_ != http_.body_nbytes) {
      return invalid("the body has " + std::to_string(http_.body_nbytes - next_) +
                     " bytes after what the inputs' binary_data_size and the JSON account for");
    }
    for (JsonOutput& output : json.outputs) {
      if (Failure wrong = add_output(output, request, plan)) return wrong;
    }
    request.keep_alive = memory_;
    return std::nullopt;
  }

 private:
  Failure add_input(JsonInput& json, Request& request) {
    const std::string which = input_named(json.name);
    if (json.name.empty()) return invalid("an input has no name");
    if (json.datatype.empty()) return invalid(which + " has no datatype");
    if (!json.has_shape) return invalid(which + " has no shape");
    auto dtype = input_dtype(json.name, json.datatype);
    if (!dtype.ok()) return dtype.error();
    auto place = placement(which, json.parameters);
    if (!place.ok()) return place.error();
    const bool binary = find(json.parameters, "binary_data_size") != nullptr;
    if (json.data.present + binary + !place->region.empty() != 1) {
      return invalid(which + " must have exactly one of \"data\", the parameter binary_data_size and shared memory");
    }
    Input input;
    input.name = std::move(json.name);
    input.dtype = *dtype;
    if (json.data.present) {
      JsonInput named = std::move(json);
      named.name = input.name;
      auto elements = to_elements(named, *dtype);
      if (!elements.ok()) return elements.error();
      input.shape = std::move(named.shape);
      memory_->hold(input, elements->memory, elements->nbytes);
    } else if (binary) {
      input.shape = std::move(json.shape);
      if (Failure wrong = take_binary(which, json, input)) return wrong;
    } else {
      input.shape = std::move(json.shape);
      auto block = shared_.read(*place);
      if (!block.ok()) return block.error();
      memory_->hold(input, *block, place->nbytes);
    }
    request.inputs.push_back(std::move(input));
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
    auto binary = flag(json.parameters, "binary_data", plan.binary_by_default);
    if (!binary.ok()) return binary.error();
    auto place = placement(output_named(json.name), json.parameters);
    if (!place.ok()) return place.error();
    Delivery delivery{json.name, *binary, !place->region.empty(), *place};
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
  std::shared_ptr<InputMemory> memory_ = std::make_shared<InputMemory>(http_.owner);
};

Failure append_output(HttpReply& reply, const Output& output, const Delivery& delivery, const SharedMemory& shared) {
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
    if (Failure failed = append_elements(text, output)) return failed;
  }
  text += '}';
  return std::nullopt;
}

HttpReply reply_for(Response&& response, const Plan& plan, const SharedMemory& shared) {
  if (response.error) return error_reply(*response.error);
  HttpReply reply;
  std::string& text = reply.text;
  text.reserve(256);
  text += "{\"model_name\":";
  append_json_string(text, response.model);
  ((text += ",\"model_version\":\"") += response.version) += '"';
  if (!response.id.empty()) append_json_string(text += ",\"id\":", response.id);
  text += ",\"outputs\":[";
  for (std::size_t i = 0; i < response.outputs.size(); ++i) {
    if (i > 0) text += ',';
    const Delivery all{"", plan.binary_by_default, false, {}};
    const Delivery& delivery = plan.outputs.empty() ? all : plan.outputs[i];
    if (Failure failed = append_output(reply, response.outputs[i], delivery, shared)) return error_reply(*failed);
  }
  text += "]}";
  reply.json_nbytes = text.size();
  if (reply.has_json_length) reply.content_type = "application/octet-stream";
  reply.owner = std::move(response.memory);
  if (plan.encoding != nullptr && reply.body_nbytes() >= kSmallestCompressed) compress(reply, plan.encoding);
  return reply;
}

HttpReply reply_or_error(Response&& response, const Plan& plan, const SharedMemory& shared) try {
  return reply_for(std::move(response), plan, shared);
} catch (...) {
  return error_reply(from_exception());
}

// The bytes of the JSON part as the header says; kInvalid for a header that is no such number.
Outcome<std::size_t> json_length(const std::string& header) {
  const bool digits = header.size() <= 18 && header.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) return invalid("the header Inference-Header-Content-Length must be a whole number");
  return static_cast<std::size_t>(std::stoull(header));
}

}  // namespace

void infer(Repository& repository, const SharedMemory& shared, std::size_t max_body, const std::string& model,
           const std::string& version, HttpRequest&& http, Reply&& reply) {
  std::size_t json_nbytes = 0;
  if (!http.json_length.empty()) {
    auto length = json_length(http.json_length);
    if (!length.ok()) return reply(error_reply(length.error()));
    json_nbytes = *length;
  }
  if (Failure wrong = decompress(http, json_nbytes, max_body)) return reply(error_reply(*wrong));
  if (http.json_length.empty()) json_nbytes = http.body_nbytes;
  if (json_nbytes > http.body_nbytes) {
    return reply(error_reply(400, "Inference-Header-Content-Length is " + std::to_string(json_nbytes) +
                                      ", the body has " + std::to_string(http.body_nbytes) + " bytes"));
  }
  auto json = read_infer_json(http.text().substr(0, json_nbytes));
  if (!json.ok()) return reply(error_reply(json.error()));
  Request request;
  request.model = model;
  request.version = version;
  Plan plan;
  plan.encoding = accepted_encoding(http.accept_encoding);
  RequestMaker maker(http, shared, json_nbytes);
  if (Failure wrong = maker.make(std::move(*json), request, plan)) {
    return reply(error_reply(repository.why_refused(request, *wrong)));
  }
  http.owner.reset();
  repository.infer(std::move(request),
                   [plan = std::move(plan), reply = std::move(reply), &shared](Response&& response) {
                     HttpReply made;
                     try {
                       made = reply_or_error(std::move(response), plan, shared);
                     } catch (...) {  // not even for an error
                       made.status = 503;
                       made.drop = true;
                     }
                     reply(std::move(made));
                   });
}

}  // namespace hardtack::serve::http
