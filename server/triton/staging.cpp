#include "staging.h"

#include <cstdlib>
#include <cstring>

namespace hardtack::triton {
namespace {

constexpr std::size_t kAlignment = 64;

// (N, C, S) to (N, S, C).
template <typename Item>
void to_channels_last(const char* from, char* to, std::size_t n, std::size_t c, std::size_t s) {
  const Item* source = reinterpret_cast<const Item*>(from);
  Item* target = reinterpret_cast<Item*>(to);
  for (std::size_t i = 0; i < n; ++i, source += c * s) {
    for (std::size_t k = 0; k < s; ++k) {
      for (std::size_t j = 0; j < c; ++j) *target++ = source[j * s + k];
    }
  }
}

void to_channels_last(const Port& port, const std::vector<std::int64_t>& shape, const char* from, char* to) {
  const std::size_t n = static_cast<std::size_t>(shape[0]), c = static_cast<std::size_t>(shape[1]);
  std::size_t s = 1;
  for (std::size_t d = 2; d < shape.size(); ++d) s *= static_cast<std::size_t>(shape[d]);
  switch (port.itemsize) {
    case 1: return to_channels_last<std::uint8_t>(from, to, n, c, s);
    case 2: return to_channels_last<std::uint16_t>(from, to, n, c, s);
    case 4: return to_channels_last<std::uint32_t>(from, to, n, c, s);
    default: return to_channels_last<std::uint64_t>(from, to, n, c, s);
  }
}

void channels_last_strides(const std::vector<std::int64_t>& shape, std::vector<std::int64_t>* strides) {
  strides->assign(shape.size(), 1);
  std::int64_t stride = shape[1];
  for (std::size_t d = shape.size(); d-- > 2;) {
    (*strides)[d] = stride;
    stride *= shape[d];
  }
  (*strides)[0] = stride;
}

}  // namespace

void Staging::Free::operator()(char* memory) const { std::free(memory); }

char* Staging::Buffer::reserve(std::size_t wanted) {
  if (wanted > nbytes || memory == nullptr) {
    const std::size_t size = (wanted / kAlignment + 1) * kAlignment;
    memory.reset(static_cast<char*>(std::aligned_alloc(kAlignment, size)));
    nbytes = memory == nullptr ? 0 : size;
  }
  return memory.get();
}

Outcome Staging::join(const LoadedModel& model, const std::vector<Request*>& group) {
  const std::vector<Port>& ports = model.contract.inputs;
  buffers_.resize(ports.size());
  tensors_.resize(ports.size());
  shapes_.resize(ports.size());
  strides_.resize(ports.size());
  num_rows_ = 0;
  nbytes_ = 0;
  for (const Request* request : group) num_rows_ += request->num_rows();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    for (const Request* request : group) nbytes_ += request->nbytes(i);
    shapes_[i] = group[0]->shape(i);
    if (group.size() > 1) shapes_[i][0] = num_rows_;
    ht_tensor& tensor = tensors_[i];
    std::memset(&tensor, 0, sizeof tensor);
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(1);
    tensor.ndim = static_cast<std::int32_t>(shapes_[i].size());
    tensor.dtype = ports[i].dtype;
    tensor.shape = shapes_[i].data();
    if (ports[i].channels_last) {
      channels_last_strides(shapes_[i], &strides_[i]);
      tensor.strides = strides_[i].data();
    }
    if (group.size() == 1 && group[0]->in_place(i) != nullptr) {
      tensor.data = const_cast<void*>(group[0]->in_place(i));  // inputs are only read
    } else if (Outcome failed = copy(model, group, i)) {
      return failed;
    }
  }
  return {};
}

Outcome Staging::copy(const LoadedModel& model, const std::vector<Request*>& group, std::size_t input) {
  const Port& port = model.contract.inputs[input];
  std::size_t total = 0;
  for (const Request* request : group) total += request->nbytes(input);
  char* to = buffers_[input].reserve(total);
  tensors_[input].data = to;
  for (const Request* request : group) {
    char* target = port.channels_last ? permuted_.reserve(request->nbytes(input)) : to;
    if (to == nullptr || target == nullptr) {
      return Fault{TRITONSERVER_ERROR_UNAVAILABLE,
                   "input '" + port.name + "': no memory for " + std::to_string(total) + " bytes"};
    }
    if (Outcome failed = request->copy_input(input, target)) {
      failed->message = "input '" + port.name + "': " + failed->message;
      return failed;
    }
    if (port.channels_last) to_channels_last(port, request->shape(input), target, to);
    to += request->nbytes(input);
  }
  return {};
}

}  // namespace hardtack::triton
