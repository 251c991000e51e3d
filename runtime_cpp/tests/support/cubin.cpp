#include "support/cubin.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <elf.h>

#include <cstring>

#include "hash.h"

namespace hardtack::testing {
namespace {

struct Section {
  std::string name, bytes;
  uint32_t type = SHT_PROGBITS;
};

std::string param_info(const std::vector<CubinParam>& params) {
  std::string out;
  uint32_t offset = 0;
  for (uint16_t i = 0; i < params.size(); ++i) {
    const uint32_t nbytes = static_cast<uint32_t>(params[i].nbytes), align = nbytes < 64 ? nbytes : 64;
    offset = (offset + align - 1) / align * align;
    const uint8_t head[] = {4, 0x17, 12, 0};
    const uint32_t index = 0, bits = nbytes << 18 | 0x1F000 | (params[i].pointer ? 0x400 : 0);
    const uint16_t place[] = {i, static_cast<uint16_t>(offset)};
    out.append(reinterpret_cast<const char*>(head), sizeof head);
    out.append(reinterpret_cast<const char*>(&index), sizeof index);
    out.append(reinterpret_cast<const char*>(place), sizeof place);
    out.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    offset += nbytes;
  }
  return out;
}

}  // namespace

std::string cubin(const std::string& function, const std::vector<CubinParam>& params, int arch) {
  std::vector<Section> sections = {{"", "", SHT_NULL},
                                   {".shstrtab", "", SHT_STRTAB},
                                   {".nv.info." + function, param_info(params), 0x70000000},
                                   {".text." + function, std::string(64, '\0'), SHT_PROGBITS}};
  for (const Section& s : sections) sections[1].bytes += s.name + '\0';
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = 1;
  header.e_ident[EI_OSABI] = 0x33;
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_flags = static_cast<uint32_t>(arch << 16 | 0x500 | arch);
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<uint16_t>(sections.size());
  header.e_shstrndx = 1;
  std::string table, data;
  const size_t start = sizeof header + sections.size() * sizeof(Elf64_Shdr);
  uint32_t name = 0;
  for (const Section& s : sections) {
    Elf64_Shdr row = {};
    row.sh_name = name;
    row.sh_type = s.type;
    row.sh_offset = start + data.size();
    row.sh_size = s.bytes.size();
    table.append(reinterpret_cast<const char*>(&row), sizeof row);
    data += s.bytes;
    name += static_cast<uint32_t>(s.name.size()) + 1;
  }
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + table + data;
}

std::string kernel_member(const std::string& code) {
  return "kernels/" + rt::sha256_hex(code.data(), code.size()).substr(0, 32) + ".cubin";
}

std::string GpuText::json() const {
  const auto text = [](int n) { return std::to_string(n); };
  return "{\"args\":" + args + ",\"cluster\":" + text(cluster) + ",\"dependent\":" + (dependent ? "true" : "false") +
         ",\"function\":\"" + function + "\",\"maps\":" + maps + ",\"member\":\"" + kernel_member(code) +
         "\",\"scratch\":" + text(scratch) + ",\"scratch_align\":" + text(scratch_align) +
         ",\"shared\":" + text(shared) + ",\"threads\":" + text(threads) + "}";
}

Sample cuda_add_sample(const GpuText& gpu) {
  Sample s = add_sample();
  PlanText& p = s.plan;
  p.target = "cuda:sm_90";
  const int s0 = p.sym(0), one = p.n(1), three = p.n(3);
  const int numel = p.op("mul", {three, s0});
  p.value("w", "f32", {three}, {one}, R"(["constant","w"])");
  p.kernels[0] = replaced(p.kernels[0], "\"name\":", "\"gpu\":" + gpu.json() + ",\"name\":");
  p.body = {p.gpu_launch(0, {0, 1, 3}, {numel}, {s0, one, one}), p.gpu_launch(0, {3, 0, 2}, {numel}, {s0, one, one})};
  return s;
}

Sample cuda_branch_sample() {
  Sample s = branch_sample();
  s.plan.target = "cuda:sm_90";
  return s;
}

Sample cuda_state_sample() {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "count";
  p.target = "cuda:sm_90";
  const int n = p.output("n", "i64", {}, {});
  const int count = p.value("count", "i64", {}, {}, R"(["state","count"])");
  p.body = {p.copy(count, n)};
  s.entry.outputs = {manifest_tensor("i64", "n", {}, {})};
  return s;
}

BundleText cuda_bundle_of(const std::vector<Sample>& samples, const GpuText& gpu) {
  BundleText bundle;
  bundle.members.clear();
  bundle.targets = {R"({"device":"cuda","library":null,"name":"cuda:sm_90","requires":["sm_90"]})"};
  bundle.target_names = {"cuda:sm_90"};
  const int64_t five = 5;
  bundle.constants = {{"i64", "five", {}, std::string(reinterpret_cast<const char*>(&five), sizeof five)},
                      {"f32", "w", {3}, std::string(12, '\1')}};
  for (const Sample& sample : samples) {
    bundle.plan(sample.plan);
    bundle.entries.push_back(sample.entry);
    if (sample.entry.name == "count") bundle.states = {state_json("i64", "five", "count", {})};
    if (!sample.plan.kernels.empty()) bundle.members[kernel_member(gpu.code)] = gpu.code;
  }
  return bundle;
}

namespace {

template <typename Function>
Function null_function(const char* name) {
  static void* library = ::dlopen(HARDTACK_NULL_DRIVER, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

void null_set(const std::string& name, const std::string& value) {
  null_function<void (*)(const char*, const char*)>("ht_null_set")(name.c_str(), value.c_str());
}

std::string null_take(const std::string& what) {
  return null_function<const char* (*)(const char*)>("ht_null_take")(what.c_str());
}

NullDriver::NullDriver() {
  null_take("log");
  null_take("problems");
}

NullDriver::~NullDriver() {
  for (const char* name : {"DEVICES", "ARCH", "FAIL", "REPORT"}) null_set(std::string("HARDTACK_NULL_") + name, "");
  CHECK(null_take("problems") == "");
  CHECK(null_take("leaks") == "");
}

ht_load_options NullDriver::options() const {
  ht_load_options options = ht_load_options_default();
  options.device = "cuda";
  options.cuda_driver = HARDTACK_NULL_DRIVER;
  return options;
}

}  // namespace hardtack::testing
