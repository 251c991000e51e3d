// A plan (docs/plan.md) as tables of indices. `parse_plan` reads it, `verify_plan` proves it sound; nothing else may
// trust an index of a plan that has not been verified.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "dtype.h"
#include "expr.h"
#include "json_reader.h"
#include "manifest.h"
#include "status.h"

namespace hardtack::rt {

constexpr uint32_t kNone = 0xFFFFFFFF;
constexpr uint32_t kMaxRank = 64;

struct PlanSym {
  const char* name = "";
  int64_t lo = 0;
  int64_t hi = kNoUpperBound;
  uint32_t input = 0;  // kNone: an instruction of the plan reads it
  int32_t dim = -1;    // -1: the value of a rank-0 i64 input
};

enum class Relation : uint8_t { eq, ne, lt, le };

struct Guard {
  Relation relation = Relation::eq;
  uint32_t a = 0, b = 0;
  const char* text = "";
};

enum class Storage : uint8_t { input, output, constant, state, arena };

struct Value {
  const char* name = "";
  DType dtype = DType::u8;
  Storage storage = Storage::arena;
  uint32_t ndim = 0;
  uint32_t first_dim = 0;  // plan.dims[first_dim, + ndim) are the shape's expressions, the next ndim the strides'
  uint32_t at = 0;         // input or output index; constant or state index (after verify_plan); arena: expression
  const char* storage_name = nullptr;  // constant, state
  bool is_complex = false;             // an input or output that is complex for callers (after verify_plan)
  bool is_written = false;             // an input that runs write to (after verify_plan)
};

/// Whether no instruction may write to it.
inline bool is_read_only(const Value& v) {
  return v.storage == Storage::constant || (v.storage == Storage::input && !v.is_written);
}

/// An input or output as callers see it: complex numbers are one element, their parts no dimension.
inline uint32_t port_ndim(const Value& v) { return v.ndim - (v.is_complex ? 1 : 0); }
inline DType port_dtype(const Value& v) { return v.is_complex ? complex_dtype(v.dtype) : v.dtype; }

enum class Access : uint8_t { read, write, readwrite };

struct BufferParam {
  DType dtype = DType::u8;
  Access access = Access::read;
};

enum class GpuArgKind : uint8_t { buffer, integer, status, site, scratch, null, map, map_shape, map_stride };

/// One .param of a GPU kernel.
struct GpuArg {
  GpuArgKind kind = GpuArgKind::null;
  uint32_t a = 0;     // buffer: its number; integer: its number among the ints; map...: the tensor map
  uint32_t b = 0;     // map_shape, map_stride: the dimension
  bool wide = false;  // integer: 8 bytes, not 4
};

/// The fixed part of a tensor map.
struct TensorMap {
  uint32_t first_block = 0, rank = 0;  // plan.blocks[first_block, + rank), outermost first
  uint32_t swizzle = 0;
  DType dtype = DType::u8;
};

struct GpuKernel {
  const char* member = "";
  const char* function = "";
  uint32_t threads = 0, shared_nbytes = 0, cluster = 1;
  bool dependent = false;
  uint32_t scratch_nbytes = 0, scratch_align = 1;  // of a CTA
  uint32_t first_arg = 0, num_args = 0;            // plan.gpu_args[first_arg, + num_args)
  uint32_t first_map = 0, num_maps = 0;            // plan.tensor_maps[first_map, + num_maps)
};

/// Elements of a buffer, in elements: each is written (`fills`), or no others are touched.
struct AccessBox {
  bool fills = false;
  uint32_t offset = 0;  // expression
  uint32_t first_dim = 0,
           ndim = 0;  // plan.access_dims[first_dim, + ndim) are the shape's expressions, then the strides'
};

/// What a kernel may be launched with, fields as in Instr, and what it then accesses.
struct Call {
  uint32_t first_int = 0, num_ints = 0;  // plan.call_ints
  uint32_t shared = 0, per_worker = 0;
  bool has_grid = false;
  uint32_t grid[3] = {};
  uint32_t first_list = 0, num_lists = 0;  // plan.access_lists, one a buffer
};

/// The accesses of one buffer: plan.accesses[first, + count).
struct AccessList {
  uint32_t first = 0, count = 0;
};

struct Kernel {
  const char* name = "";
  uint32_t first_call = 0, num_calls = 0;     // plan.calls
  uint32_t first_param = 0, num_buffers = 0;  // plan.params[first_param, + num_buffers)
  uint32_t num_ints = 0;
  uint32_t gpu = kNone;        // in plan.gpu_kernels; kNone on the CPU
  const char* host = nullptr;  // the function of the host program that it calls; null: none
};

/// What a launch gives a tensor map.
struct MapSource {
  uint32_t buffer = 0;               // among the launch's buffers
  uint32_t offset = 0;               // expression, in elements
  uint32_t first_dim = 0, ndim = 0;  // plan.map_dims[first_dim, + ndim) are the shape's expressions, then the strides'
};

enum class InstrOp : uint8_t { launch, copy, fill, branch, loop, read };

struct Instr {
  InstrOp op = InstrOp::launch;
  uint32_t kernel = 0;
  uint32_t call = kNone;                                  // in plan.calls; after verify_plan
  uint32_t first_arg = 0, num_buffers = 0, num_ints = 0;  // plan.args: buffers (values), then ints (expressions)
  uint32_t shared = 0, per_worker = 0;                    // expressions; on the CPU
  bool has_grid = false;                                  // a launch on a GPU
  uint32_t grid[3] = {};                                  // expressions
  uint32_t first_map = 0, num_maps = 0;                   // plan.map_sources[first_map, + num_maps)
  uint32_t src = 0, dst = 0, cond = 0;                    // values
  uint32_t sym = 0, arena = 0;                            // read: the symbol; expression: nbytes of the arena from here
  int64_t bits = 0;
  uint32_t origin = 0;
  uint32_t next = kNone;    // the following instruction of the same body
  uint32_t first = kNone;   // branch: then; loop: cond_body
  uint32_t second = kNone;  // branch: else; loop: body
};

struct Origin {
  const char* file = "";
  int64_t line = 0;
  const char* op = "";
  const char* module = "";
  const char* source = "";
};

struct Plan {
  std::shared_ptr<TextPool> texts;
  const char* entry = "";
  const char* target = "";
  std::vector<PlanSym> syms;
  ExprTable exprs;
  std::vector<Guard> guards;
  std::vector<Value> values;
  std::vector<uint32_t> dims;
  std::vector<uint32_t> inputs, outputs;  // values
  std::vector<Kernel> kernels;
  std::vector<BufferParam> params;
  std::vector<Call> calls;
  std::vector<uint32_t> call_ints;  // expressions
  std::vector<AccessList> access_lists;
  std::vector<AccessBox> accesses;
  std::vector<uint32_t> access_dims;  // expressions
  std::vector<GpuKernel> gpu_kernels;
  std::vector<GpuArg> gpu_args;
  std::vector<TensorMap> tensor_maps;
  std::vector<uint32_t> blocks;
  std::vector<MapSource> map_sources;
  std::vector<uint32_t> map_dims;
  std::vector<Instr> instrs;
  std::vector<uint32_t> args;
  uint32_t body = kNone;  // the first instruction
  std::vector<Origin> origins;
  uint32_t arena = 0;  // expression

  // Filled by verify_plan.
  struct Lifetime {
    uint32_t value = 0;
    uint32_t begin = 0, end = 0;  // positions of the first write and the last use, both included
  };
  std::vector<Lifetime> lifetimes;  // arena values that are used, ascending by begin
  bool is_static = false;           // no symbol decides a size or a place
  size_t num_input_syms = 0;        // those that inputs bind, which stand first; the others are read in their order
  struct Read {
    uint32_t position = 0;  // as in Lifetime
    uint32_t arena = 0;     // expression
  };
  std::vector<Read> reads;

  /// The arena's nbytes while the first `num_known` symbols are known.
  uint32_t arena_with(size_t num_known) const {
    return num_known == num_input_syms ? arena : reads[num_known - num_input_syms - 1].arena;
  }

  const uint32_t* shape(const Value& v) const { return dims.data() + v.first_dim; }
  const uint32_t* strides(const Value& v) const { return dims.data() + v.first_dim + v.ndim; }
  const uint32_t* buffers(const Instr& i) const { return args.data() + i.first_arg; }
  const uint32_t* ints(const Instr& i) const { return args.data() + i.first_arg + i.num_buffers; }
};

/// How wide the .param is: 4, 8, or 128 for a tensor map.
uint32_t gpu_arg_nbytes(const GpuArg& arg);

/// Reads the text; `what` names it in errors. Indices are not checked.
Status parse_plan(std::string_view text, const char* what, Plan* plan);

}  // namespace hardtack::rt
