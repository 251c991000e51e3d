// JSON, checksums, ZIP, safetensors, ELF: the parsers alone.
#include <doctest/doctest.h>

#include "cpu_features.h"
#include "ed25519.h"
#include "elf_check.h"
#include "hash.h"
#include "json_reader.h"
#include "library_check.h"
#include "safetensors.h"
#include "support/bundle_text.h"
#include "zip.h"

using namespace hardtack::rt;
using namespace hardtack::testing;

namespace {

// Skips one document and gives the error.
std::string json_error(const std::string& text, JsonReader::Mode mode = JsonReader::Mode::canonical) {
  TextPool pool(text.size());
  JsonReader json(text, &pool, "doc", mode);
  json.skip();
  return json.finish().message();
}

std::string decoded(const std::string& text) {
  TextPool pool(text.size());
  JsonReader json(text, &pool, "doc");
  const std::string value(json.string_view());
  const Status status = json.finish();
  CHECK_MESSAGE(status.ok(), std::string(status.message()));
  return value;
}

std::string zip_error(const std::string& bytes) {
  std::vector<Member> members;
  const auto source = open_memory(bytes.data(), bytes.size(), nullptr, nullptr);
  return read_zip(*source, &members).message();
}

}  // namespace

TEST_CASE("canonical JSON is accepted") {
  for (const char* text : {"{}", "[]", "[1,-2,0]", R"({"a":{"b":[true,false,null]},"c":"x"})", "9223372036854775807",
                           "-9223372036854775808", R"("\u00e9\ud83d\ude00\n\"\\\u007f")"}) {
    CHECK_MESSAGE(json_error(text).empty(), text << ": " << json_error(text));
  }
  CHECK(decoded(R"("\u00e9\ud83d\ude00\n\"\\\u007f/")") == "\xC3\xA9\xF0\x9F\x98\x80\n\"\\\x7F/");
  CHECK(decoded(R"("\u0001\u20ac\ufb01")") == "\x01\xE2\x82\xAC\xEF\xAC\x81");
}

TEST_CASE("everything else is refused") {
  const std::pair<const char*, const char*> cases[] = {
      {"[1, 2]", "doc: byte 3: expected an integer, found \" 2]\""},
      {"{\"b\":1,\"a\":2}", "doc: byte 10: keys are not in ascending order at \"a\""},
      {"{\"a\":1,\"a\":2}", "doc: byte 10: keys are not in ascending order at \"a\""},
      {"1.5", "doc: byte 0: expected an integer, found \"1.5\""},
      {"1e3", "doc: byte 0: expected an integer, found \"1e3\""},
      {"01", "doc: byte 0: expected an integer, found \"01\""},
      {"-0", "doc: byte 0: expected an integer, found \"-0\""},
      {"9223372036854775808", "doc: byte 0: not a 64-bit integer"},
      {"NaN", "doc: byte 0: expected an integer, found \"NaN\""},
      {"[1", "doc: byte 2: expected \",\" or \"]\", found the end"},
      {"[1]x", "doc: byte 3: expected the end, found \"x\""},
      {"\"\x01\"", "doc: byte 1: a control character in a string"},
      {"\"\xC3\xA9\"", "doc: byte 1: a character in a string that must be escaped"},
      {R"("\u0041")", "doc: byte 7: a character in a string is escaped but need not be"},
      {R"("\u00E9")", "doc: byte 5: a bad \\u escape in a string"},
      {R"("\ud800")", "doc: byte 7: a lone surrogate in a string"},
      {R"("\udc00")", "doc: byte 7: a lone surrogate in a string"},
      {R"("\u0000")", "doc: byte 7: U+0000 in a string"},
      {R"("\/")", "doc: byte 2: an unknown escape in a string"},
      {"\"abc", "doc: byte 4: a string does not end"},
      {"{\"a\":1,}", "doc: byte 7: expected a string, found \"}\""},
      {"", "doc: byte 0: expected an integer, found the end"},
      {"{\"a\" 1}", "doc: byte 4: expected \":\", found \" 1}\""},
      {"{\"a", "doc: byte 3: a string does not end"},
      {"\"\\", "doc: byte 2: a string does not end"},
      {"nul", "doc: byte 0: expected a value, found \"nul\""},
      {"1E5", "doc: byte 0: expected an integer, found \"1E5\""},
      {"99999999999999999999", "doc: byte 0: not a 64-bit integer"},
      {R"("\u00)", "doc: byte 3: a bad \\u escape in a string"},
      {R"("\u00g0")", "doc: byte 5: a bad \\u escape in a string"},
      {R"("\u00:0")", "doc: byte 5: a bad \\u escape in a string"},
      {R"("\u00 0")", "doc: byte 5: a bad \\u escape in a string"},
      {R"("\ud83d\n1234")", "doc: byte 7: a lone surrogate in a string"},
      {R"("\ud83d\u00zz")", "doc: byte 11: a lone surrogate in a string"},
      {R"("\ud83d\u0041")", "doc: byte 13: a lone surrogate in a string"},
      {R"("\ud83d\uffff")", "doc: byte 13: a lone surrogate in a string"},
      {R"("\u0008")", "doc: byte 7: a character in a string is escaped but need not be"},
      {R"("\u0009")", "doc: byte 7: a character in a string is escaped but need not be"},
      {R"("\u000a")", "doc: byte 7: a character in a string is escaped but need not be"},
      {R"("\u000c")", "doc: byte 7: a character in a string is escaped but need not be"},
      {R"("\u000d")", "doc: byte 7: a character in a string is escaped but need not be"},
  };
  for (const auto& [text, message] : cases)
    CHECK_MESSAGE(json_error(text) == message, text << ": " << json_error(text));
  CHECK(json_error(std::string(33, '[') + std::string(33, ']')) == "doc: byte 33: nested more than 32 deep");
  CHECK(json_error(std::string(32, '[') + std::string(32, ']')).empty());
}

TEST_CASE("lenient JSON takes whitespace, UTF-8 and any order, still no fractions") {
  CHECK(json_error(" { \"b\" : 1 ,\n\"a\":\"\xC3\xA9\\/\" } ", JsonReader::Mode::lenient).empty());
  CHECK(json_error("[\r1,\t\"\\u0041\\u00E9\"]", JsonReader::Mode::lenient).empty());
  CHECK_FALSE(json_error("[1.0]", JsonReader::Mode::lenient).empty());
  CHECK(json_error("\"\\u00G0\"", JsonReader::Mode::lenient) == "doc: byte 5: a bad \\u escape in a string");
  CHECK(json_error("\"\\u00@0\"", JsonReader::Mode::lenient) == "doc: byte 5: a bad \\u escape in a string");
}

TEST_CASE("SHA-256 and CRC-32 of known texts, in any pieces") {
  CHECK(sha256_hex("", 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1000000, 'a');
  const std::string expected = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
  CHECK(sha256_hex(million.data(), million.size()) == expected);
  for (const size_t piece : {1u, 55u, 63u, 64u, 65u, 1000u}) {
    Sha256 hash;
    for (size_t at = 0; at < million.size(); at += piece)
      hash.update(million.data() + at, std::min(piece, million.size() - at));
    CHECK(hex(hash.finish()) == expected);
  }
  CHECK(crc32(0, "123456789", 9) == 0xCBF43926u);
  CHECK(crc32(crc32(0, "1234", 4), "56789", 5) == 0xCBF43926u);
}

namespace {

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace

TEST_CASE("SHA-256 is the same without the CPU's instructions for it") {
  std::string text;
  for (int n = 0; n < 300; ++n, text += static_cast<char>(n * 7)) {
    Sha256 portable(true);
    portable.update(text.data(), text.size());
    CHECK(hex(portable.finish()) == sha256_hex(text.data(), text.size()));
  }
  Sha256 known(true);
  known.update("abc", 3);
  CHECK(hex(known.finish()) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("SHA-512 and Ed25519: the vectors of FIPS 180-4 and RFC 8032, and every bit of a signature counts") {
  const auto sha512 = [](const std::string& text) {
    Sha512 hash;
    hash.update(text.data(), text.size());
    const auto digest = hash.finish();
    return std::vector<uint8_t>(digest.begin(), digest.end());
  };
  CHECK(sha512("abc") == from_hex("ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                                  "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"));
  CHECK(sha512("") == from_hex("cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
                               "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e"));
  struct Vector {
    const char *key, *message, *signature;
  };
  const Vector vectors[] = {{"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
                             "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701"
                             "cf9b46bd25bf5f0595bbe24655141438e7a100b"},
                            {"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
                             "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d"
                             "0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
                            {"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
                             "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f7609"
                             "84dc6594a7c15e9716ed28dc027beceea1ec40a"}};
  for (const Vector& v : vectors) {
    const std::vector<uint8_t> key = from_hex(v.key), message = from_hex(v.message);
    std::vector<uint8_t> signature = from_hex(v.signature);
    CHECK(ed25519_verify(signature.data(), key.data(), message.data(), message.size()));
    for (size_t i = 0; i < 64; ++i) {
      signature[i] = static_cast<uint8_t>(signature[i] ^ 1 << i % 8);
      CHECK_FALSE(ed25519_verify(signature.data(), key.data(), message.data(), message.size()));
      signature[i] = static_cast<uint8_t>(signature[i] ^ 1 << i % 8);
    }
    const uint8_t other[] = {0x71};
    CHECK_FALSE(ed25519_verify(signature.data(), key.data(), other, 1));
  }
  // S + L signs the same equation; RFC 8032 refuses it. A key whose y is not below p is refused, too.
  std::vector<uint8_t> malleable = from_hex(vectors[0].signature);
  const std::vector<uint8_t> order = from_hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
  int carry = 0;
  for (size_t i = 0; i < 32; ++i) {
    carry += malleable[32 + i] + order[i];
    malleable[32 + i] = static_cast<uint8_t>(carry);
    carry >>= 8;
  }
  CHECK_FALSE(ed25519_verify(malleable.data(), from_hex(vectors[0].key).data(), nullptr, 0));
  CHECK_FALSE(ed25519_verify(from_hex(vectors[0].signature).data(), std::vector<uint8_t>(32, 0xFF).data(), nullptr, 0));
}

TEST_CASE("the canonical archive is read back") {
  const std::string bytes =
      write_zip({{"manifest.json", "{}"}, {"plans/a.json", "x"}, {"w.safetensors", std::string(100, 'w')}});
  std::vector<Member> members;
  const auto source = open_memory(bytes.data(), bytes.size(), nullptr, nullptr);
  REQUIRE(read_zip(*source, &members).ok());
  REQUIRE(members.size() == 3);
  CHECK(members[1].name == "plans/a.json");
  CHECK(members[1].data_offset % 64 == 0);
  CHECK(members[2].data_offset == 65536);
  CHECK(bytes.substr(members[2].data_offset, 3) == "www");
}

TEST_CASE("padding that does not fit an extra field falls back to half the alignment") {
  Member member;
  member.name = "w.safetensors";
  // The header without padding is 30 + 13 + 4 = 47 bytes: at 65536 - 46 it ends one byte behind the boundary.
  member.header_offset = 65536 - 46;
  CHECK(data_offset(member) == 65536 + 32768);
  CHECK(local_header(member).size() == data_offset(member) - member.header_offset);
  member.header_offset = 65536 - 43;  // 65532 zero bytes and the block's header: 65536, one too many
  CHECK(data_offset(member) == 65536 + 32768);
  member.header_offset = 65536 - 42;  // 65531 zero bytes fit
  CHECK(data_offset(member) == 2 * 65536);
}

TEST_CASE("ZIP64 fields appear where they are needed and nowhere else") {
  Member member;
  member.name = "w.safetensors";
  member.nbytes = 0xFFFFFFFE;
  CHECK(central_header(member).size() == 46 + 13);
  member.nbytes = 0xFFFFFFFF;
  CHECK(central_header(member).size() == 46 + 13 + 20);
  member.header_offset = 0x100000000;
  CHECK(central_header(member).size() == 46 + 13 + 28);
  CHECK(end_records(65534, 10, 10).size() == 22);
  CHECK(end_records(65535, 10, 10).size() == 98);
  CHECK(end_records(1, 0xFFFFFFFF, 10).size() == 98);
}

TEST_CASE("any other archive is refused with the member's name") {
  const std::string good = write_zip({{"manifest.json", "{}"}, {"plans/a.json", "x"}});
  CHECK(zip_error(good).empty());
  CHECK(zip_error("") == "too short for a bundle: 0 bytes");
  CHECK(zip_error(std::string(100, 'x')) == "not a bundle: no ZIP end record in the last 22 bytes");
  CHECK(zip_error(good + "x") == "not a bundle: no ZIP end record in the last 22 bytes");
  CHECK(zip_error("x" + good) == "the central directory does not lie where the end record says");
  CHECK(zip_error(write_zip({{"plans/a.json", "x"}})) == "not a bundle: the first member is not manifest.json");
  CHECK(zip_error(write_zip({})) == "not a bundle: the first member is not manifest.json");
  CHECK(zip_error(write_zip({{"manifest.json", ""}, {"other.txt", ""}})) ==
        "member other.txt: no member of this name belongs into a bundle");
  CHECK(zip_error(write_zip({{"manifest.json", ""}, {"plans/b", ""}, {"plans/a", ""}})) ==
        "member plans/a: out of order after plans/b");
  CHECK(zip_error(write_zip({{"manifest.json", ""}, {"plans/a", ""}, {"plans/a", ""}})) ==
        "member plans/a: out of order after plans/a");
  CHECK(zip_error(write_zip({{"manifest.json", ""}, {"plans/../x", ""}})) == "member 1: its name is not allowed");
  for (const std::string name : {"", "plans//a", "plans/./a", "plans/a b", "/plans/a"}) {
    CHECK_MESSAGE(zip_error(write_zip({{"manifest.json", ""}, {name, ""}})) == "member 1: its name is not allowed",
                  name);
  }
  CHECK(zip_error(write_zip({{"manifest.json", ""}, {std::string("plans/\0a", 8), ""}})) ==
        "member 1: its name is not allowed");
  CHECK(zip_error(write_zip({{"manifest.json", ""}, {"weights.safetensors", ""}, {"plans/a", ""}})) ==
        "member plans/a: out of order after weights.safetensors");
}

TEST_CASE("an end record that tells of another directory than the one that is there") {
  const std::vector<std::pair<std::string, std::string>> files = {{"manifest.json", "{}"}, {"plans/a.json", "x"}};
  const std::string good = write_zip(files);
  const std::string body = good.substr(0, good.size() - 22);
  const size_t start = good.find("PK\1\2");
  const std::string elsewhere = "the central directory does not lie where the end record says";
  CHECK(zip_error(body + end_records(2, start, body.size() - start)).empty());
  CHECK(zip_error(body + end_records(1, start, body.size() - start)) == "bytes after the last central header");
  CHECK(zip_error(body + end_records(3, start, body.size() - start)) == elsewhere);
  const std::string long_name = write_zip({{"manifest.json", "{}"}, {"plans/" + std::string(99, 'a'), "x"}});
  const size_t names = long_name.find("PK\1\2"), directory = long_name.size() - 22 - names;
  CHECK(zip_error(long_name.substr(0, long_name.size() - 22) + end_records(3, names, directory)) ==
        "member 2: its central header is cut off");
  CHECK(zip_error(good.substr(0, start) + "x" + body.substr(start) + end_records(2, start + 1, body.size() - start)) ==
        "bytes between the last member and the directory");
  CHECK(zip_error(end_records(65535, 0, 0).substr(76)) == "the ZIP64 end record is missing");
  CHECK(zip_error(end_records(1, 0, 0xFFFFFFFF).substr(76)) == "the ZIP64 end record is missing");
  CHECK(zip_error(end_records(1, 0xFFFFFFFF, 0).substr(76)) == "the ZIP64 end record is missing");
  CHECK(zip_error(body + end_records(uint64_t{1} << 40, start, body.size() - start)) == elsewhere);
  CHECK(zip_error(body + end_records(65536, start, body.size() - start)) == elsewhere);
  CHECK(zip_error(body + end_records(2, start + 1, body.size() - start)) == elsewhere);
}

TEST_CASE("every changed byte of the headers is noticed") {
  const std::string good = write_zip({{"manifest.json", "{}"}, {"plans/a.json", "x"}});
  std::vector<Member> members;
  const auto source = open_memory(good.data(), good.size(), nullptr, nullptr);
  REQUIRE(read_zip(*source, &members).ok());
  for (size_t at = 0; at < good.size(); ++at) {
    bool is_data = false;
    for (const Member& m : members) is_data = is_data || (at >= m.data_offset && at < m.data_offset + m.nbytes);
    if (is_data) continue;
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    CHECK_MESSAGE(!zip_error(changed).empty(), "byte " << at);
  }
  for (size_t length = 0; length < good.size(); ++length) CHECK(!zip_error(good.substr(0, length)).empty());
}

namespace {

std::string weights_error(const std::string& bytes) {
  uint64_t nbytes = 0;
  WeightsHeader header;
  if (bytes.size() < 8) return "short";
  const Status status =
      weights_header_nbytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), "w", &nbytes);
  if (!status.ok()) return status.message();
  return parse_weights_header(std::string_view(bytes).substr(0, nbytes), bytes.size(), "w", &header).message();
}

}  // namespace

TEST_CASE("weights headers: tensors by name, everything else refused") {
  const std::string good =
      write_safetensors({{"f32", "a", {2}, std::string(8, 'a')}, {"i8", "b", {300}, std::string(300, 'b')}});
  CHECK(weights_error(good).empty());
  uint64_t nbytes = 0;
  WeightsHeader header;
  REQUIRE(weights_header_nbytes(reinterpret_cast<const uint8_t*>(good.data()), good.size(), "w", &nbytes).ok());
  REQUIRE(parse_weights_header(std::string_view(good).substr(0, nbytes), good.size(), "w", &header).ok());
  REQUIRE(header.find("b") != nullptr);
  CHECK(header.find("b")->offset % 256 == 0);
  CHECK(good[header.find("b")->offset] == 'b');
  CHECK(header.find("c") == nullptr);

  CHECK(weights_error(replaced(good, "\"I8\"", "\"I7\"")) != "");
  CHECK(weights_error(replaced(good, "[300]", "[301]")) ==
        "w: byte 173: shape and data_offsets do not agree, or lie outside the member, for \"b\"");
  CHECK(weights_error(replaced(good, "\"b\"", "\"a\"")) == "member w: tensor \"a\" twice");
  CHECK(weights_error(replaced(good, "\"a\"", "\"c\"")) == "member w: tensor \"b\" is out of order");
  CHECK(weights_error(replaced(good, "\"b\"", "\"__pad_x\"")) == "member w: padding \"__pad_x\" is not U8");
  CHECK(weights_error(good + "x") == "member w: bytes after the last tensor");
  CHECK(weights_error(replaced(good, "[2]", "[4611686018427387905]")) != "");
  std::string odd = good;
  odd[0] = static_cast<char>(odd[0] + 1);
  CHECK(weights_error(odd).find("not a multiple of 256") != std::string::npos);
  std::string huge = good;
  huge[7] = '\x7f';
  CHECK(weights_error(huge).find("does not fit into its") != std::string::npos);
}

TEST_CASE("weights headers: what is said of a tensor is whole, said once and possible") {
  // The header alone, padded to 256 bytes, of a member of so many bytes.
  const auto refusal = [](const std::string& json, uint64_t member_nbytes = 256) {
    const std::string header = "\xf8" + std::string(7, '\0') + json + std::string(248 - json.size(), ' ');
    WeightsHeader out;
    return std::string(parse_weights_header(header, member_nbytes, "w", &out).message());
  };
  CHECK(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})") == "");
  const std::string missing = "dtype, shape or data_offsets is missing of \"a\"";
  for (const char* some :
       {R"({"a":{}})", R"({"a":{"dtype":"F32"}})", R"({"a":{"dtype":"F32","shape":[1]}})",
        R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", R"({"a":{"shape":[1],"data_offsets":[0,4]}})"}) {
    CHECK_MESSAGE(refusal(some).find(missing) != std::string::npos, some << ": " << refusal(some));
  }
  CHECK(refusal(R"({"a":{"dtype":"F32","dtype":"F32"}})").find("key twice: \"dtype\"") != std::string::npos);
  CHECK(refusal(R"({"a":{"dtype":"F32","more":1}})").find("unknown key \"more\"") != std::string::npos);
  CHECK(refusal(R"({"a":{"shape":[-1]}})").find("a bad shape of \"a\"") != std::string::npos);
  CHECK(refusal(R"({"a":{"shape":[4294967296,4294967296]}})").find("a bad shape of \"a\"") != std::string::npos);
  std::string dims = "1";
  for (int i = 0; i < 64; ++i) dims += ",1";
  CHECK(refusal(R"({"a":{"shape":[)" + dims + "]}}").find("more than 64 dimensions of \"a\"") != std::string::npos);
  for (const char* range : {"[-4,0]", "[4,0]", "[0,8]", "[0,3]"}) {
    const std::string text = refusal(std::string(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)") + range + "}}");
    CHECK_MESSAGE(text.find("shape and data_offsets do not agree") != std::string::npos, text);
  }
  uint64_t nbytes = 0;
  const uint8_t small[8] = {0xF8}, large[8] = {0xF8, 0, 0, 0, 1};
  CHECK(weights_header_nbytes(small, 256, "w", &nbytes).ok());
  CHECK_FALSE(weights_header_nbytes(small, 7, "w", &nbytes).ok());
  CHECK(std::string(weights_header_nbytes(large, uint64_t{1} << 40, "w", &nbytes).message()) ==
        "member w: its header of 4294967544 bytes does not fit into its 1099511627776 bytes");
  WeightsHeader out;
  CHECK(std::string(parse_weights_header("short", 256, "w", &out).message()) == "member w: too short");
  CHECK(std::string(parse_weights_header(std::string_view("\xf8\0\0\0\0\0\0\0{}", 10), 256, "w", &out).message()) ==
        "member w: its header is cut off");
}

TEST_CASE("libraries: the test kernels pass, anything else says why not") {
  const std::string good = kernel_library();
  CHECK(check_library(good, "lib", native_elf_machine()).ok());
  CHECK(std::string(check_library("hello", "lib", 62).message()) == "library lib: not an ELF file");
  CHECK(std::string(check_library(good, "lib", native_elf_machine() == 62 ? 183 : 62).message()).find("expected") !=
        std::string::npos);
  std::string executable = good;
  executable[16] = 2;
  CHECK(std::string(check_library(executable, "lib", 0).message()) == "library lib: not a shared object");
  for (size_t length = 0; length < 4096 && length < good.size(); length += 7) {
    CHECK_FALSE(check_library(good.substr(0, length), "lib", 0).ok());
  }
}

TEST_CASE("cpu features go by the compilers' names") {
  CHECK_FALSE(cpu_has("no-such-feature"));
#if defined(__x86_64__)
  CHECK(cpu_has("sse2"));
  CHECK(cpu_feature_list().find("sse2") != std::string::npos);
  CHECK(cpu_has("avx512f") == (__builtin_cpu_supports("avx512f") != 0));
  CHECK(cpu_has("avx2") == (__builtin_cpu_supports("avx2") != 0));
  CHECK(cpu_has("fma") == (__builtin_cpu_supports("fma") != 0));
#elif defined(__aarch64__)
  CHECK(cpu_has("neon"));
  uint64_t isar0 = 0, isar1 = 0;  // which Linux, and qemu, let programs read; S3_0_C0_C6_n is ID_AA64ISARn_EL1
  __asm__("mrs %0, S3_0_C0_C6_0" : "=r"(isar0));
  __asm__("mrs %0, S3_0_C0_C6_1" : "=r"(isar1));
  CHECK(cpu_has("bf16") == ((isar1 >> 44 & 15) != 0));
  CHECK(cpu_has("i8mm") == ((isar1 >> 52 & 15) != 0));
  CHECK(cpu_has("dotprod") == ((isar0 >> 44 & 15) != 0));
  CHECK(cpu_has("lse") == ((isar0 >> 20 & 15) >= 2));
#endif
}
