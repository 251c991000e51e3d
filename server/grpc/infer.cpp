#include "server/grpc/infer.h"

#include <algorithm>
#include <new>

#include "server/core/input_memory.h"
#include "server/core/protocol.h"
#include "server/grpc/contents.h"

namespace hardtack::serve::rpc {

namespace {

using Parameters = google::protobuf::Map<std::string, pb::InferParameter>;

Error invalid(std::string sentence) { return {Code::kInvalid, std::move(sentence)}; }

// Nothing for a parameter without a value.
std::optional<Parameter> value_of(const pb::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case pb::InferParameter::kBoolParam: return parameter.bool_param();
    case pb::InferParameter::kInt64Param: return parameter.int64_param();
    case pb::InferParameter::kStringParam: return parameter.string_param();
    case pb::InferParameter::kDoubleParam: return parameter.double_param();
    case pb::InferParameter::kUint64Param:
      if (parameter.uint64_param() > INT64_MAX) return std::to_string(parameter.uint64_param());
      return static_cast<std::int64_t>(parameter.uint64_param());
    default: return std::nullopt;
  }
}

Outcome<Placement> placement(const std::string& which, const std::string& owner, const Parameters& parameters) {
  if (parameters.empty()) return Placement{};
  return placement_of(which, owner, [&](const char* name) {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::nullopt : value_of(found->second);
  });
}

struct Counted {
  Share share;
  pb::ModelInferRequest message;
};

// First what the request says (form), then what it holds (data): nothing is copied for a request that is refused.
class RequestMaker {
 public:
  RequestMaker(std::shared_ptr<Counted> counted, const ReadRoom& room)
      : message_(counted->message),
        shared_(room.shared),
        budget_(room.budget),
        memory_(std::make_shared<InputMemory>(std::move(counted), room.budget)) {}

  Failure form(Request& request, Deliveries& deliveries) {
    for (const auto& [name, parameter] : message_.parameters()) {
      const auto value = value_of(parameter);
      if (!value) continue;
      if (Failure wrong = apply_parameter(request, name, *value)) return wrong;
    }
    request.inputs.reserve(static_cast<std::size_t>(message_.inputs_size()));
    for (auto& tensor : *message_.mutable_inputs()) {
      if (Failure wrong = add_input(tensor, request)) return wrong;
    }
    for (auto& tensor : *message_.mutable_outputs()) {
      if (Failure wrong = add_output(tensor, request, deliveries)) return wrong;
    }
    return std::nullopt;
  }

  Failure data(Request& request) {
    for (int i = 0; i < message_.inputs_size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      Input& input = request.inputs[at];
      if (Failure wrong = take_data(input_named(input.name), message_.inputs(i).contents(), places_[at], input)) {
        return wrong;
      }
    }
    if (next_raw_ != message_.raw_input_contents_size()) {
      return invalid("the request has " + std::to_string(message_.raw_input_contents_size()) +
                     " raw_input_contents for " + std::to_string(next_raw_) +
                     " inputs; each input that is not in shared memory takes one");
    }
    request.keep_alive = memory_;
    return std::nullopt;
  }

 private:
  Failure add_input(pb::ModelInferRequest::InferInputTensor& tensor, Request& request) {
    if (tensor.name().empty()) return invalid("an input has no name");
    const std::string which = input_named(tensor.name());
    if (tensor.datatype().empty()) return invalid(which + " has no datatype");
    auto dtype = input_dtype(tensor.name(), tensor.datatype());
    if (!dtype.ok()) return dtype.error();
    auto place = placement(which, request.owner, tensor.parameters());
    if (!place.ok()) return place.error();
    auto input =
        make_input(std::move(*tensor.mutable_name()), *dtype, {tensor.shape().begin(), tensor.shape().end()}, *place);
    if (!input.ok()) return input.error();
    request.inputs.push_back(std::move(*input));
    places_.push_back(std::move(*place));
    return std::nullopt;
  }

  Failure take_data(const std::string& which, const pb::InferTensorContents& contents, const Placement& place,
                    Input& input) {
    const bool typed = has_elements(contents);
    const bool raw = message_.raw_input_contents_size() > 0;
    if (!place.region.empty()) {
      if (typed) return invalid(which + " lies in shared memory and has contents; it must have one of them");
      auto block = shared_.read(place, budget_);
      if (!block.ok()) return block.error();
      memory_->hold(input, std::move(*block), place.nbytes);
      return std::nullopt;
    }
    if (raw && typed)
      return invalid(which + " has contents and the request has raw_input_contents; it must have one of them");
    if (raw) return take_raw(which, input);
    return take_contents(contents, input, *memory_);
  }

  Failure take_raw(const std::string& which, Input& input) {
    if (next_raw_ >= message_.raw_input_contents_size()) {
      return invalid(which + " has no data: the request has " + std::to_string(message_.raw_input_contents_size()) +
                     " raw_input_contents, and each input that is not in shared memory takes one");
    }
    const std::string& bytes = message_.raw_input_contents(next_raw_++);
    return memory_->use(input, bytes.data(), bytes.size());
  }

  Failure add_output(pb::ModelInferRequest::InferRequestedOutputTensor& tensor, Request& request,
                     Deliveries& deliveries) {
    if (tensor.name().empty()) return invalid("an output has no name");
    for (const auto& [name, parameter] : tensor.parameters()) {
      if (Failure wrong = check_output_parameter(tensor.name(), name)) return wrong;
    }
    auto place = placement(output_named(tensor.name()), request.owner, tensor.parameters());
    if (!place.ok()) return place.error();
    if (!place->region.empty()) {
      if (Failure wrong = shared_.check(*place)) return wrong;
    }
    request.outputs.push_back(std::move(*tensor.mutable_name()));
    deliveries.push_back(std::move(*place));
    return std::nullopt;
  }

  pb::ModelInferRequest& message_;
  const SharedMemory& shared_;
  Budget& budget_;
  int next_raw_ = 0;
  std::vector<Placement> places_;  // of the inputs; an empty region: not in shared memory
  std::shared_ptr<InputMemory> memory_;
};

void tell_place(const Placement& place, std::size_t nbytes, pb::ModelInferResponse::InferOutputTensor& tensor) {
  auto& parameters = *tensor.mutable_parameters();
  parameters["shared_memory_region"].set_string_param(place.region);
  if (place.offset > 0) parameters["shared_memory_offset"].set_int64_param(static_cast<std::int64_t>(place.offset));
  parameters["shared_memory_byte_size"].set_int64_param(static_cast<std::int64_t>(nbytes));
}

}  // namespace

Failure read_request(const Bytes& bytes, const ReadRoom& room, Request& request, Deliveries& deliveries) try {
  auto counted = std::make_shared<Counted>();
  counted->share = Share(room.budget);
  pb::ModelInferRequest& message = counted->message;
  if (Failure wrong = parse_infer(bytes, room.limit, message, counted->share)) return wrong;
  request.model = std::move(*message.mutable_model_name());
  request.version = std::move(*message.mutable_model_version());
  if (Failure wrong = set_id(request, std::move(*message.mutable_id()))) return wrong;
  RequestMaker maker(std::move(counted), room);
  if (Failure wrong = maker.form(request, deliveries)) return wrong;
  if (Failure wrong = room.check(request)) return wrong;
  return maker.data(request);
} catch (const std::bad_alloc&) {
  return Error{Code::kNoMemory, "no memory for the request"};
}

std::unique_ptr<Delivery> delivery_of(const std::shared_ptr<const Deliveries>& deliveries, const SharedMemory& shared,
                                      bool streamed, Bytes& bytes) {
  auto delivery = std::make_unique<Delivery>();
  delivery->check = [deliveries, &shared](const std::vector<Output>& outputs) -> Failure {
    for (std::size_t i = 0; i < deliveries->size(); ++i) {
      if ((*deliveries)[i].region.empty()) continue;
      if (Failure wrong = shared.check((*deliveries)[i], outputs[i].nbytes)) return wrong;
    }
    return std::nullopt;
  };
  delivery->make = [deliveries, &shared, streamed, &bytes](Response& response) {
    return write_reply(std::move(response), *deliveries, shared, streamed, bytes);
  };
  // A region may become shorter while the model runs.
  delivery->may_fail =
      std::any_of(deliveries->begin(), deliveries->end(), [](const Placement& place) { return !place.region.empty(); });
  return delivery;
}

Failure write_reply(Response&& response, const Deliveries& deliveries, const SharedMemory& shared, bool streamed,
                    Bytes& bytes) {
  if (response.error) return std::move(response.error);
  pb::ModelInferResponse head;
  head.set_model_name(std::move(response.model));
  head.set_model_version(std::move(response.version));
  head.set_id(std::move(response.id));
  if (streamed) (*head.mutable_parameters())["triton_final_response"].set_bool_param(true);
  std::vector<Raw> raw;
  raw.reserve(response.outputs.size());
  for (std::size_t i = 0; i < response.outputs.size(); ++i) {
    Output& output = response.outputs[i];
    auto& tensor = *head.add_outputs();
    tensor.set_name(std::move(output.name));
    tensor.set_datatype(protocol_name(output.dtype));
    tensor.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    if (deliveries.empty() || deliveries[i].region.empty()) {
      raw.push_back({output.data, output.nbytes});
      continue;
    }
    if (Failure failed = shared.write(deliveries[i], output.data, output.nbytes)) return failed;
    tell_place(deliveries[i], output.nbytes, tensor);
    raw.push_back({});  // clients find raw contents by the place among all outputs
  }
  return write_infer(head, raw, std::move(response.memory), streamed, bytes);
}

}  // namespace hardtack::serve::rpc
