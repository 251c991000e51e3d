#include "plan_gpu_read.h"

#include "json_parts.h"

namespace hardtack::rt {

GpuKernel GpuPlanParser::parse_kernel() {
  GpuKernel g;
  json_.begin_object();
  json_.key("args");
  g.first_arg = next_row(plan_.gpu_args);
  g.num_args = append_list(&json_, &plan_.gpu_args, [this] { return parse_arg(); });
  json_.key("cluster");
  g.cluster = json_.index();
  json_.key("dependent");
  g.dependent = json_.boolean();
  json_.key("function");
  g.function = json_.string();
  json_.key("maps");
  g.first_map = next_row(plan_.tensor_maps);
  g.num_maps = append_list(&json_, &plan_.tensor_maps, [this] { return parse_tensor_map(); });
  json_.key("member");
  g.member = json_.string();
  json_.key("scratch");
  g.scratch_nbytes = json_.index();
  json_.key("scratch_align");
  g.scratch_align = json_.index();
  json_.key("shared");
  g.shared_nbytes = json_.index();
  json_.key("threads");
  g.threads = json_.index();
  json_.end_object();
  return g;
}

GpuArg GpuPlanParser::parse_arg() {
  static constexpr struct {
    const char* name;
    GpuArgKind kind;
    int num_indices;
  } kKinds[] = {{"buffer", GpuArgKind::buffer, 1},
                {"int", GpuArgKind::integer, 1},
                {"status", GpuArgKind::status, 0},
                {"site", GpuArgKind::site, 0},
                {"scratch", GpuArgKind::scratch, 0},
                {"null", GpuArgKind::null, 0},
                {"map", GpuArgKind::map, 1},
                {"map_shape", GpuArgKind::map_shape, 2},
                {"map_stride", GpuArgKind::map_stride, 2}};
  GpuArg arg;
  json_.begin_array();
  json_.item();
  const std::string_view name = json_.string_view();
  const auto* row = kKinds;
  while (row != std::end(kKinds) && name != row->name) ++row;
  if (row == std::end(kKinds)) return json_.fail("unknown parameter of a GPU kernel", name.data()), arg;
  arg.kind = row->kind;
  if (row->num_indices >= 1) {
    json_.item();
    arg.a = json_.index();
  }
  if (row->num_indices == 2) {
    json_.item();
    arg.b = json_.index();
  }
  if (arg.kind == GpuArgKind::integer) {
    json_.item();
    const std::string_view width = json_.string_view();
    arg.wide = width == "i64";
    if (!arg.wide && width != "i32") json_.fail("an int of another width than i32 and i64", width.data());
  }
  json_.end_array();
  return arg;
}

TensorMap GpuPlanParser::parse_tensor_map() {
  TensorMap m;
  json_.begin_object();
  json_.key("block");
  m.first_block = next_row(plan_.blocks);
  m.rank = append_indices(&json_, &plan_.blocks);
  json_.key("dtype");
  m.dtype = parse_dtype(&json_);
  json_.key("swizzle");
  m.swizzle = json_.index();
  json_.end_object();
  return m;
}

void GpuPlanParser::parse_grid(uint32_t (&grid)[3]) {
  json_.begin_array();
  for (uint32_t& extent : grid) {
    json_.item();
    extent = json_.index();
  }
  json_.end_array();
}

void GpuPlanParser::parse_map_sources(Instr* i) {
  json_.key("maps");
  i->first_map = next_row(plan_.map_sources);
  i->num_maps = append_list(&json_, &plan_.map_sources, [this] { return parse_map_source(); });
}

MapSource GpuPlanParser::parse_map_source() {
  MapSource m;
  json_.begin_object();
  json_.key("buffer");
  m.buffer = json_.index();
  json_.key("offset");
  m.offset = json_.index();
  json_.key("shape");
  m.first_dim = next_row(plan_.map_dims);
  m.ndim = append_indices(&json_, &plan_.map_dims);
  if (!append_strides(&json_, m.ndim, &plan_.map_dims))
    json_.fail("shape and strides of a tensor map differ in length");
  json_.end_object();
  return m;
}

}  // namespace hardtack::rt
