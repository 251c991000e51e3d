#include "plan.h"

#include <cstring>

#include "json_parts.h"
#include "plan_calls_read.h"
#include "plan_gpu_read.h"

namespace hardtack::rt {
namespace {

constexpr int64_t kFormat = 2;

class PlanParser {
 public:
  PlanParser(JsonReader* json, Plan* plan) : json_(*json), plan_(*plan), gpu_(json, plan), calls_(json, plan) {}

  // Keys come sorted, so the order below is that of the text.
  void parse() {
    json_.begin_object();
    json_.key("arena");
    plan_.arena = json_.index();
    json_.key("body");
    plan_.body = parse_body();
    json_.key("entry");
    plan_.entry = json_.string();
    json_.key("exprs");
    parse_list(&json_, [this] { parse_expr(); });
    json_.key("format");
    const int64_t format = json_.integer();
    if (format != kFormat && json_.ok()) {
      const std::string what = "the plan's format is " + std::to_string(format) + ", this runtime reads " +
                               std::to_string(kFormat) + ": " +
                               (format < kFormat ? "export the model again" : "update it");
      json_.fail(what.c_str());
    }
    json_.key("guards");
    parse_list(&json_, [this] { parse_guard(); });
    json_.key("inputs");
    append_indices(&json_, &plan_.inputs);
    json_.key("kernels");
    parse_list(&json_, [this] { parse_kernel(); });
    json_.key("origins");
    parse_list(&json_, [this] { parse_origin(); });
    json_.key("outputs");
    append_indices(&json_, &plan_.outputs);
    json_.key("syms");
    parse_list(&json_, [this] { parse_sym(); });
    json_.key("target");
    plan_.target = json_.string();
    json_.key("values");
    parse_list(&json_, [this] { parse_value(); });
    json_.end_object();
  }

 private:
  // Returns the first instruction; the others hang on `next`.
  uint32_t parse_body() {
    uint32_t first = kNone, last = kNone;
    json_.begin_array();
    while (json_.next_item()) {
      const uint32_t now = next_row(plan_.instrs);
      plan_.instrs.emplace_back();
      Instr instr = parse_instr();
      plan_.instrs[now] = instr;
      if (last == kNone)
        first = now;
      else
        plan_.instrs[last].next = now;
      last = now;
    }
    return first;
  }

  // The first key in sorted order tells the instructions apart; `op` is then checked.
  Instr parse_instr() {
    Instr i;
    json_.begin_object();
    const char* first = json_.next_key();
    if (first == nullptr) return json_.fail("an instruction without keys"), i;
    if (std::strcmp(first, "buffers") == 0)
      parse_launch(&i);
    else if (std::strcmp(first, "dst") == 0)
      parse_copy(&i);
    else if (std::strcmp(first, "bits") == 0)
      parse_fill(&i);
    else if (std::strcmp(first, "cond") == 0)
      parse_branch(&i);
    else if (std::strcmp(first, "body") == 0)
      parse_loop(&i);
    else if (std::strcmp(first, "arena") == 0)
      parse_read(&i);
    else
      json_.fail("no instruction starts with the key", first);
    json_.end_object();
    return i;
  }

  void parse_op(const char* expected) {
    json_.key("op");
    const char* op = json_.string();
    if (json_.ok() && std::strcmp(op, expected) != 0) json_.fail("unknown instruction", op);
  }

  void parse_origin_index(Instr* i) {
    json_.key("origin");
    i->origin = json_.index();
  }

  void parse_launch(Instr* i) {
    i->op = InstrOp::launch;
    i->first_arg = next_row(plan_.args);
    i->num_buffers = append_indices(&json_, &plan_.args);
    const char* next = json_.next_key();
    i->has_grid = next != nullptr && std::strcmp(next, "grid") == 0;
    if (i->has_grid) {
      gpu_.parse_grid(i->grid);
      json_.key("ints");
    } else if (next == nullptr || std::strcmp(next, "ints") != 0) {
      return json_.fail("a launch has neither a grid nor ints after its buffers");
    }
    i->num_ints = append_indices(&json_, &plan_.args);
    json_.key("kernel");
    i->kernel = json_.index();
    if (i->has_grid) gpu_.parse_map_sources(i);
    parse_op("launch");
    parse_origin_index(i);
    if (i->has_grid) return;
    json_.key("per_worker");
    i->per_worker = json_.index();
    json_.key("shared");
    i->shared = json_.index();
  }

  void parse_copy(Instr* i) {
    i->op = InstrOp::copy;
    i->dst = json_.index();
    parse_op("copy");
    parse_origin_index(i);
    json_.key("src");
    i->src = json_.index();
  }

  void parse_fill(Instr* i) {
    i->op = InstrOp::fill;
    i->bits = json_.integer();
    json_.key("dst");
    i->dst = json_.index();
    parse_op("fill");
    parse_origin_index(i);
  }

  void parse_branch(Instr* i) {
    i->op = InstrOp::branch;
    i->cond = json_.index();
    json_.key("else");
    i->second = parse_body();
    parse_op("if");
    parse_origin_index(i);
    json_.key("then");
    i->first = parse_body();
  }

  void parse_loop(Instr* i) {
    i->op = InstrOp::loop;
    i->second = parse_body();
    json_.key("cond");
    i->cond = json_.index();
    json_.key("cond_body");
    i->first = parse_body();
    parse_op("while");
    parse_origin_index(i);
  }

  void parse_read(Instr* i) {
    i->op = InstrOp::read;
    i->arena = json_.index();
    parse_op("read");
    parse_origin_index(i);
    json_.key("src");
    i->src = json_.index();
    json_.key("sym");
    i->sym = json_.index();
  }

  void parse_expr() {
    static constexpr struct {
      const char* name;
      ExprOp op;
    } kOps[] = {{"const", ExprOp::constant}, {"sym", ExprOp::sym}, {"add", ExprOp::add}, {"mul", ExprOp::mul},
                {"div", ExprOp::div},        {"mod", ExprOp::mod}, {"min", ExprOp::min}, {"max", ExprOp::max}};
    Expr e;
    e.first = next_row(plan_.exprs.operands);
    json_.begin_array();
    json_.item();
    const std::string_view name = json_.string_view();
    const auto* row = kOps;
    while (row != std::end(kOps) && name != row->name) ++row;
    if (row == std::end(kOps)) return json_.fail("unknown expression", name.data());
    e.op = row->op;
    json_.item();
    if (e.op == ExprOp::constant)
      e.value = json_.integer();
    else if (e.op == ExprOp::sym)
      e.value = json_.index();
    else if (e.op == ExprOp::div || e.op == ExprOp::mod)
      parse_pair();
    else
      append_indices(&json_, &plan_.exprs.operands);
    json_.end_array();
    e.count = next_row(plan_.exprs.operands) - e.first;
    plan_.exprs.nodes.push_back(e);
  }

  void parse_pair() {
    plan_.exprs.operands.push_back(json_.index());
    json_.item();
    plan_.exprs.operands.push_back(json_.index());
  }

  void parse_guard() {
    static constexpr const char* kRelations[] = {"eq", "ne", "lt", "le"};
    Guard g;
    json_.begin_object();
    json_.key("a");
    g.a = json_.index();
    json_.key("b");
    g.b = json_.index();
    json_.key("relation");
    const std::string_view relation = json_.string_view();
    uint8_t r = 0;
    while (r < 4 && relation != kRelations[r]) ++r;
    if (r == 4) json_.fail("unknown relation", relation.data());
    g.relation = static_cast<Relation>(r);
    json_.key("text");
    g.text = json_.string();
    json_.end_object();
    plan_.guards.push_back(g);
  }

  void parse_sym() {
    PlanSym s;
    json_.begin_object();
    json_.key("dim");
    if (!json_.null()) s.dim = static_cast<int32_t>(json_.index(kMaxRank));
    json_.key("hi");
    if (!json_.null()) s.hi = json_.integer();
    json_.key("input");
    if (json_.null())
      s.input = kNone;
    else
      s.input = json_.index();
    json_.key("lo");
    s.lo = json_.integer();
    json_.key("name");
    s.name = json_.string();
    json_.end_object();
    plan_.syms.push_back(s);
  }

  void parse_value() {
    Value v;
    json_.begin_object();
    json_.key("dtype");
    v.dtype = parse_dtype(&json_);
    json_.key("name");
    v.name = json_.string();
    json_.key("shape");
    v.first_dim = next_row(plan_.dims);
    v.ndim = append_indices(&json_, &plan_.dims);
    json_.key("storage");
    parse_storage(&v);
    if (!append_strides(&json_, v.ndim, &plan_.dims)) json_.fail("shape and strides differ in length for", v.name);
    if (v.ndim > kMaxRank) json_.fail("more than 64 dimensions in", v.name);
    json_.end_object();
    plan_.values.push_back(v);
  }

  void parse_storage(Value* v) {
    static constexpr const char* kNames[] = {"input", "output", "constant", "state", "arena"};
    json_.begin_array();
    json_.item();
    const std::string_view name = json_.string_view();
    uint8_t kind = 0;
    while (kind < 5 && name != kNames[kind]) ++kind;
    if (kind == 5) return json_.fail("unknown storage", name.data());
    v->storage = static_cast<Storage>(kind);
    json_.item();
    if (v->storage == Storage::constant || v->storage == Storage::state)
      v->storage_name = json_.string();
    else
      v->at = json_.index();
    json_.end_array();
  }

  void parse_kernel() {
    Kernel k;
    k.first_param = next_row(plan_.params);
    json_.begin_object();
    json_.key("calls");
    k.first_call = next_row(plan_.calls);
    parse_list(&json_, [this] { calls_.parse(); });
    k.num_calls = next_row(plan_.calls) - k.first_call;
    const char* first = json_.next_key();
    if (first != nullptr && std::strcmp(first, "gpu") == 0) {
      k.gpu = next_row(plan_.gpu_kernels);
      plan_.gpu_kernels.push_back(gpu_.parse_kernel());
      json_.key("name");
    } else if (first != nullptr && std::strcmp(first, "host") == 0) {
      k.host = json_.string();
      json_.key("name");
    } else if (first == nullptr || std::strcmp(first, "name") != 0) {
      return json_.fail("a kernel starts with neither gpu, host nor name");
    }
    k.name = json_.string();
    json_.key("params");
    parse_list(&json_, [this, &k] { parse_param(&k); });
    json_.end_object();
    plan_.kernels.push_back(k);
  }

  void parse_param(Kernel* k) {
    static constexpr const char* kAccess[] = {"read", "write", "readwrite"};
    json_.begin_array();
    json_.item();
    const std::string_view kind = json_.string_view();
    if (kind == "int") {
      ++k->num_ints;
    } else if (kind == "buffer") {
      if (k->num_ints > 0) json_.fail("a buffer parameter after an int in kernel", k->name);
      BufferParam param;
      json_.item();
      param.dtype = parse_dtype(&json_);
      json_.item();
      const std::string_view access = json_.string_view();
      uint8_t a = 0;
      while (a < 3 && access != kAccess[a]) ++a;
      if (a == 3) json_.fail("unknown access", access.data());
      param.access = static_cast<Access>(a);
      plan_.params.push_back(param);
      ++k->num_buffers;
    } else {
      json_.fail("unknown parameter kind", kind.data());
    }
    json_.end_array();
  }

  void parse_origin() {
    Origin o;
    json_.begin_array();
    json_.item();
    o.file = json_.string();
    json_.item();
    o.line = json_.integer();
    json_.item();
    o.op = json_.string();
    json_.item();
    o.module = json_.string();
    json_.item();
    o.source = json_.string();
    json_.end_array();
    plan_.origins.push_back(o);
  }

  JsonReader& json_;
  Plan& plan_;
  GpuPlanParser gpu_;
  CallParser calls_;
};

}  // namespace

Status parse_plan(std::string_view text, const char* what, Plan* plan) {
  plan->texts = std::make_shared<TextPool>(text.size());
  JsonReader json(text, plan->texts.get(), what);
  PlanParser(&json, plan).parse();
  return json.finish();
}

}  // namespace hardtack::rt
