#include "support/bundle_text.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "hash.h"
#include "zip.h"

namespace hardtack::testing {
namespace {

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string shape_json(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const int64_t n : shape) parts.push_back(std::to_string(n));
  return join(parts);
}

std::string member_json(const std::string& name, const std::string& bytes) {
  return "{\"name\":" + quoted(name) + ",\"nbytes\":" + std::to_string(bytes.size()) +
         ",\"sha256\":" + quoted(rt::sha256_hex(bytes.data(), bytes.size())) + "}";
}

std::string safetensors_dtype(std::string dtype) {
  std::transform(dtype.begin(), dtype.end(), dtype.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
  return dtype;
}

}  // namespace

std::string manifest_tensor(const std::string& dtype, const std::string& name, const std::vector<std::string>& shape,
                            const std::vector<std::string>& strides) {
  return "{\"dtype\":" + quoted(dtype) + ",\"name\":" + quoted(name) + ",\"shape\":" + join(shape) +
         ",\"strides\":" + join(strides) + "}";
}

std::string state_json(const std::string& dtype, const std::string& init, const std::string& name,
                       const std::vector<int64_t>& shape) {
  return "{\"dtype\":" + quoted(dtype) + ",\"init\":" + (init.empty() ? "null" : quoted(init)) +
         ",\"name\":" + quoted(name) + ",\"shape\":" + shape_json(shape) + "}";
}

BundleText::BundleText() {
  targets = {R"({"device":"cpu","library":"lib/test.so","name":"cpu:test","requires":[]})"};
  target_names = {"cpu:test"};
  members["lib/test.so"] = kernel_library();
}

void BundleText::plan(PlanText text) {
  const std::string name = "plans/" + text.entry + "." + text.target.substr(text.target.find(':') + 1) + ".json";
  members[name] = text.json();
}

std::vector<std::pair<std::string, std::string>> BundleText::ordered_members() const {
  std::vector<std::pair<std::string, std::string>> out(members.begin(), members.end());
  if (!constants.empty() && external.empty()) out.emplace_back("weights.safetensors", write_safetensors(constants));
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::make_pair(rt::member_group(a.first), a.first) < std::make_pair(rt::member_group(b.first), b.first);
  });
  return out;
}

std::string BundleText::manifest() const {
  std::vector<std::string> constant_rows, entry_rows, member_rows;
  for (const ConstantText& c : constants) {
    constant_rows.push_back("{\"dtype\":" + quoted(c.dtype) +
                            ",\"file\":" + quoted(external.empty() ? "weights.safetensors" : external) +
                            ",\"name\":" + quoted(c.name) + ",\"recipe\":" + c.recipe +
                            ",\"shape\":" + shape_json(c.shape) + ",\"tensor\":" + quoted(c.name) + "}");
  }
  for (const EntryText& e : entries) {
    std::vector<std::string> plans;
    for (const std::string& target : target_names) {
      plans.push_back(quoted(target) + ":" +
                      quoted("plans/" + e.name + "." + target.substr(target.find(':') + 1) + ".json"));
    }
    std::string plan_rows = join(plans);
    plan_rows.front() = '{', plan_rows.back() = '}';
    entry_rows.push_back("{\"in_tree\":" + e.in_tree + ",\"inputs\":" + join(e.inputs) + ",\"name\":" + quoted(e.name) +
                         ",\"out_tree\":" + e.out_tree + ",\"outputs\":" + join(e.outputs) + ",\"plans\":" + plan_rows +
                         ",\"syms\":" + join(e.syms) + "}");
  }
  for (const auto& [name, bytes] : ordered_members()) member_rows.push_back(member_json(name, bytes));
  const std::string outside = external.empty() ? "null" : member_json(external, write_safetensors(constants));
  return "{\"constants\":" + join(constant_rows) + ",\"entries\":" + join(entry_rows) + ",\"external\":" + outside +
         ",\"format\":" + std::to_string(format) + ",\"members\":" + join(member_rows) +
         ",\"numerics\":{\"accumulate\":\"f32\"},\"parameters\":" + join(parameters) + ",\"producer\":" + producer +
         ",\"signature\":" + signature + ",\"states\":" + join(states) + ",\"targets\":" + join(targets) +
         (format < 3 ? "" : ",\"user_kernels\":" + join(user_kernels)) + "}";
}

std::string BundleText::build() const { return build_with(manifest()); }

std::string BundleText::build_with(const std::string& manifest_text) const {
  auto all = ordered_members();
  all.insert(all.begin(), {"manifest.json", manifest_text});
  return write_zip(all);
}

std::string write_safetensors(const std::vector<ConstantText>& tensors) {
  std::string header, data;
  for (const ConstantText& t : tensors) {
    if (data.size() % 256 != 0) {
      const size_t pad = 256 - data.size() % 256;
      header += (header.empty() ? "" : ",") + quoted("__pad_" + std::to_string(data.size())) +
                ":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(pad) + "],\"data_offsets\":[" +
                std::to_string(data.size()) + "," + std::to_string(data.size() + pad) + "]}";
      data.append(pad, '\0');
    }
    header += (header.empty() ? "" : ",") + quoted(t.name) + ":{\"dtype\":" + quoted(safetensors_dtype(t.dtype)) +
              ",\"shape\":" + shape_json(t.shape) + ",\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + t.bytes.size()) + "]}";
    data += t.bytes;
  }
  header = "{" + header + "}";
  header.append((256 - (header.size() + 8) % 256) % 256, ' ');
  std::string length;
  for (size_t i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return length + header + data;
}

const std::string& kernel_library() {
  static const std::string bytes = [] {
    std::ifstream file(HARDTACK_TEST_KERNELS, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }();
  REQUIRE(!bytes.empty());
  return bytes;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, "nothing to replace: " << from);
  return text.substr(0, at) + to + text.substr(at + from.size());
}

TemporaryFile::TemporaryFile(const std::string& bytes) {
  const char* folder = std::getenv("TMPDIR");
  path_ = std::string(folder == nullptr ? "/tmp" : folder) + "/hardtack_test_XXXXXX";
  const int fd = ::mkstemp(path_.data());
  REQUIRE(fd >= 0);
  ::close(fd);
  write(bytes);
}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

void TemporaryFile::write(const std::string& bytes) const {
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace hardtack::testing
