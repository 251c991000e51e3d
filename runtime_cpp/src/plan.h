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

struct PlanSym {
  const char* name = "";
  int64_t lo = 0;
  int64_t hi = kNoUpperBound;
  uint32_t input = 0;
  int32_t dim = -1;  // -1: the value of a rank-0 i64 input
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
};

enum class Access : uint8_t { read, write, readwrite };

struct BufferParam {
  DType dtype = DType::u8;
  Access access = Access::read;
};

struct Kernel {
  const char* name = "";
  uint32_t first_param = 0, num_buffers = 0;  // plan.params[first_param, + num_buffers)
  uint32_t num_ints = 0;
};

enum class InstrOp : uint8_t { launch, copy, fill, branch, loop };

struct Instr {
  InstrOp op = InstrOp::launch;
  uint32_t kernel = 0;
  uint32_t first_arg = 0, num_buffers = 0, num_ints = 0;  // plan.args: buffers (values), then ints (expressions)
  uint32_t shared = 0, per_worker = 0;                    // expressions
  uint32_t src = 0, dst = 0, cond = 0;                    // values
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

  const uint32_t* shape(const Value& v) const { return dims.data() + v.first_dim; }
  const uint32_t* strides(const Value& v) const { return dims.data() + v.first_dim + v.ndim; }
  const uint32_t* buffers(const Instr& i) const { return args.data() + i.first_arg; }
  const uint32_t* ints(const Instr& i) const { return args.data() + i.first_arg + i.num_buffers; }
};

/// Reads the text; `what` names it in errors. Indices are not checked.
Status parse_plan(std::string_view text, const char* what, Plan* plan);

}  // namespace hardtack::rt
