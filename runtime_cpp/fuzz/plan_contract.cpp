#include "plan_contract.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hardtack::fuzz {
namespace {

using namespace rt;

constexpr int kChanges = 16;  // of each tensor

[[noreturn]] void fail(const Port& port, const char* problem) {
  std::fprintf(stderr, "the plan was proved, but the contract of %s %u %s\n", port.kind, port.index, problem);
  std::abort();
}

struct Given {
  Given(const Value& value, const BoundPort& bound, void* data)
      : shape(bound.shape, bound.shape + port_ndim(value)), strides(bound.strides, bound.strides + port_ndim(value)) {
    tensor.data = data;
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(1);
    tensor.ndim = static_cast<int32_t>(port_ndim(value));
    tensor.dtype = dl_dtype(port_dtype(value));
  }
  ht_tensor& get() {
    tensor.shape = shape.data();
    tensor.strides = row_major ? nullptr : strides.data();
    return tensor;
  }

  std::vector<int64_t> shape, strides;
  bool row_major = false;
  ht_tensor tensor = {};
};

void change(Given* given, std::mt19937_64& random) {
  static constexpr int64_t kNumbers[] = {-1, 0, 1, 2, 3, 64, int64_t{1} << 40, INT64_MAX, INT64_MIN};
  const auto number = [&] { return kNumbers[random() % std::size(kNumbers)]; };
  const size_t rank = given->shape.size();
  switch (random() % 7) {
    case 0: given->row_major = true; return;
    case 1: given->tensor.data = nullptr; return;
    case 2: given->tensor.byte_offset = static_cast<uint64_t>(number()); return;
    case 3: given->tensor.ndim += random() % 2 == 0 ? 1 : -1; return;
    case 4: given->tensor.dtype = dl_dtype(random() % 2 == 0 ? DType::i8 : DType::f64); return;
    case 5:
      if (rank > 0) given->shape[random() % rank] = number();
      return;
    default:
      if (rank > 0) given->strides[random() % rank] = number();
  }
}

// Bytes from the first element to the end of the last; of no elements none.
__extension__ typedef __int128 Wide;
Wide reach(const Given& given, int64_t unit) {
  if (std::find(given.shape.begin(), given.shape.end(), 0) != given.shape.end()) return 0;
  Wide last = 0, contiguous = 1;
  for (size_t d = given.shape.size(); d-- > 0;) {
    last += (given.shape[d] - 1) * (given.row_major ? contiguous : Wide{given.strides[d]});
    contiguous *= given.shape[d];
  }
  return (last + 1) * unit;
}

bool takes(const Port& port, Given* given, const BoundPort& bound, const Device& device) {
  return check_form(port, given->get(), device).ok() &&
         check_sizes(port, given->get(), bound.shape, bound.strides).ok();
}

void check_port(const Port& port, const BoundPort& bound, void* data, const Device& device, std::mt19937_64& random) {
  const Value& value = *port.value;
  Given fitting(value, bound, data);
  if (!takes(port, &fitting, bound, device)) fail(port, "does not take what fits");
  for (int i = 0; i < kChanges; ++i) {
    Given given(value, bound, data);
    change(&given, random);
    if (!takes(port, &given, bound, device)) continue;
    const Wide nbytes = reach(given, itemsize(port_dtype(value)));
    if (given.tensor.ndim != fitting.tensor.ndim || given.shape != fitting.shape) fail(port, "takes another shape");
    if (nbytes < 0 || nbytes > bound.nbytes) fail(port, "takes what reaches too far");
    if (nbytes > 0 && given.tensor.data == nullptr) fail(port, "takes no memory for elements");
    DType dtype;
    if (!dtype_from_dl(given.tensor.dtype, &dtype) || dtype != port_dtype(value)) fail(port, "takes another dtype");
  }
}

}  // namespace

void check_contract(const Manifest& manifest, const Program& program, const Binding& binding,
                    const std::vector<int64_t>& syms, const std::vector<void*>& pointers, const Device& device,
                    std::mt19937_64& random) {
  const ManifestEntry& entry = manifest.entries.front();
  const Plan& plan = program.plan;
  const auto input = [&](uint32_t i) {
    return Port{"input", i, entry.name, &plan.values[plan.inputs[i]], &entry.inputs[i]};
  };
  for (uint32_t i = 0; i < plan.inputs.size(); ++i) {
    check_port(input(i), binding.input(i), pointers[i], device, random);
  }
  for (uint32_t i = 0; i < plan.outputs.size(); ++i) {
    const Port port = {"output", i, entry.name, &plan.values[plan.outputs[i]], &entry.outputs[i]};
    check_port(port, binding.output(i), pointers[plan.inputs.size() + i], device, random);
  }
  for (size_t s = 0; s < plan.syms.size(); ++s) {
    const PlanSym& sym = plan.syms[s];
    const Port port = input(sym.input);
    Given given(*port.value, binding.input(sym.input), pointers[sym.input]);
    if (sym.dim < 0) std::memcpy(given.tensor.data, &syms[s], sizeof syms[s]);
    int64_t found = 0;
    if (!read_sym(sym, port, given.get(), nullptr, &found).ok() || found != syms[s]) {
      fail(port, "reads another symbol");
    }
  }
}

}  // namespace hardtack::fuzz
