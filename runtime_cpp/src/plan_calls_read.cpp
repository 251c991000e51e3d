#include "plan_calls_read.h"

#include <cstring>

#include "json_parts.h"
#include "plan_gpu_read.h"

namespace hardtack::rt {

void CallParser::parse() {
  Call c;
  json_.begin_object();
  json_.key("accesses");
  c.first_list = next_row(plan_.access_lists);
  parse_list(&json_, [this] {
    AccessList list = {next_row(plan_.accesses), 0};
    parse_list(&json_, [this] { parse_access(); });
    list.count = next_row(plan_.accesses) - list.first;
    plan_.access_lists.push_back(list);
  });
  c.num_lists = next_row(plan_.access_lists) - c.first_list;
  const char* next = json_.next_key();
  c.has_grid = next != nullptr && std::strcmp(next, "grid") == 0;
  if (c.has_grid) {
    GpuPlanParser(&json_, &plan_).parse_grid(c.grid);
    json_.key("ints");
  } else if (next == nullptr || std::strcmp(next, "ints") != 0) {
    return json_.fail("a call has neither a grid nor ints after its accesses");
  }
  c.first_int = next_row(plan_.call_ints);
  c.num_ints = append_indices(&json_, &plan_.call_ints);
  if (!c.has_grid) {
    json_.key("per_worker");
    c.per_worker = json_.index();
    json_.key("shared");
    c.shared = json_.index();
  }
  json_.end_object();
  plan_.calls.push_back(c);
}

void CallParser::parse_access() {
  AccessBox a;
  json_.begin_array();
  json_.item();
  const std::string_view kind = json_.string_view();
  a.fills = kind == "fill";
  if (!a.fills && kind != "touch") return json_.fail("an access is neither a fill nor a touch but", kind.data());
  json_.item();
  a.offset = json_.index();
  json_.item();
  a.first_dim = next_row(plan_.access_dims);
  a.ndim = append_indices(&json_, &plan_.access_dims);
  json_.item();
  if (append_indices(&json_, &plan_.access_dims) != a.ndim)
    json_.fail("shape and strides of an access differ in length");
  if (a.ndim > kMaxRank) json_.fail("more than 64 dimensions in an access");
  json_.end_array();
  plan_.accesses.push_back(a);
}

}  // namespace hardtack::rt
