#include "bundle_mutator.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "hash.h"
#include "json_mutator.h"
#include "support/zip_writer.h"
#include "zip.h"

namespace hardtack::fuzz {
namespace {

using nlohmann::json;
using Members = std::vector<std::pair<std::string, std::string>>;

Members read_members(const std::string& bytes) {
  const auto source = rt::open_memory(bytes.data(), bytes.size(), nullptr, nullptr);
  std::vector<rt::Member> found;
  Members members;
  if (!rt::read_zip(*source, &found).ok()) return members;
  for (const rt::Member& member : found) {
    std::string data;
    if (!rt::read_member(*source, member, &data).ok()) return {};
    members.emplace_back(member.name, std::move(data));
  }
  return members;
}

/// The header alone: its length stands in front, and tensors lie at the offsets that it names.
std::string mutate_weights(const std::string& member, std::mt19937_64& random) {
  if (member.size() < 8) return member;
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(static_cast<unsigned char>(member[i])) << (8 * i);
  if (length > member.size() - 8) return member;
  std::string header = mutate_json(member.substr(8, static_cast<size_t>(length)), random);
  header.append((256 - (header.size() + 8) % 256) % 256, ' ');
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + member.substr(8 + static_cast<size_t>(length));
}

std::string mutate_bytes(std::string member, std::mt19937_64& random) {
  if (!member.empty()) member[random() % member.size()] = static_cast<char>(random());
  return member;
}

std::string mutate_member(const std::string& name, const std::string& data, std::mt19937_64& random) {
  switch (rt::member_group(name)) {
    case 0:
    case 1: return mutate_json(data, random);
    case 5: return mutate_weights(data, random);
    default: return mutate_bytes(data, random);
  }
}

/// The manifest with the sizes and hashes of `members`, where it is still the list of them.
std::string manifest_of(const std::string& text, const Members& members) {
  json manifest = json::parse(text, nullptr, false);
  if (!manifest.is_object() || !manifest["members"].is_array()) return text;
  for (json& row : manifest["members"]) {
    if (!row.is_object() || !row["name"].is_string()) continue;
    for (const auto& [name, data] : members) {
      if (row["name"] != name) continue;
      row["nbytes"] = data.size();
      row["sha256"] = rt::sha256_hex(data.data(), data.size());
    }
  }
  return manifest.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace

std::string mutate_bundle(const std::string& bytes, std::mt19937_64& random) {
  Members members = read_members(bytes);
  if (members.empty()) return bytes;
  auto& [name, data] =
      members[random() % (random() % 2 == 0 ? 1 : members.size())];  // the manifest holds the most rules
  data = mutate_member(name, data, random);
  members.front().second = manifest_of(members.front().second, members);
  return testing::write_zip(members);
}

}  // namespace hardtack::fuzz
