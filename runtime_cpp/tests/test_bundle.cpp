// Bundles that disagree with themselves: manifest, members, hashes, libraries.
#include <doctest/doctest.h>

#include "hash.h"
#include "manifest.h"
#include "support/samples.h"

using namespace hardtack::testing;

namespace {

// RFC 8032's first test key, and its signature over the manifest of signed_bundle with the signature null.
constexpr const char* kPublicKey = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
constexpr const char* kSignature =
    "dad04e6a149d4979c74b813518144be7a1bf224d7995b1249ec6b55ebae896e69357365d07c9265ea6cac0b1e6b5b96de361e8233babfa5c0b"
    "475b4de81b1306";

// The error for a bundle whose manifest has `from` replaced; the members keep their bytes.
std::string changed_manifest(const BundleText& bundle, const std::string& from, const std::string& to) {
  return load_outcome(bundle.build_with(replaced(bundle.manifest(), from, to))).message;
}

std::string error_of(const BundleText& bundle) {
  const Outcome o = load_outcome(bundle.build());
  CHECK(o.code == HT_BAD_BUNDLE);
  return o.message;
}

}  // namespace

TEST_CASE("another format is named with both numbers") {
  BundleText bundle = bundle_of({add_sample()});
  bundle.format = 6;
  CHECK(error_of(bundle) == "this bundle has format 6; this version of Hardtack (0.1.0) reads formats 1 to 5");
}

TEST_CASE("members and the manifest agree") {
  const BundleText bundle = bundle_of({add_sample()});
  const std::string& library = kernel_library();
  const std::string nbytes = std::to_string(library.size());
  CHECK(changed_manifest(bundle, "\"name\":\"lib/test.so\",\"nbytes\":" + nbytes,
                         "\"name\":\"lib/test.so\",\"nbytes\":1") ==
        "member lib/test.so: " + nbytes + " bytes, the manifest says 1");
  CHECK(changed_manifest(bundle, "\"name\":\"lib/test.so\",\"nbytes\"", "\"name\":\"lib/tost.so\",\"nbytes\"") ==
        "manifest.json: target cpu:test: no member \"lib/test.so\"");
  const std::string row = ",{\"name\":\"lib/test.so\",\"nbytes\":" + nbytes + ",\"sha256\":\"" +
                          hardtack::rt::sha256_hex(library.data(), library.size()) + "\"}";
  CHECK(changed_manifest(bundle, row,
                         row + ",{\"name\":\"lib/z.so\",\"nbytes\":0,\"sha256\":\"" + std::string(64, '0') + "\"}") ==
        "manifest.json: member \"lib/z.so\" is not at its place in the archive");
  BundleText more = bundle;
  more.members["lib/z.so"] = "z";
  CHECK(load_outcome(more.build_with(bundle.manifest())).message == "member lib/z.so is not in the manifest");
}

TEST_CASE("checksums and hashes") {
  const BundleText bundle = bundle_of({add_sample(), gather_sample()});
  const std::string& library = kernel_library();
  const std::string digest = hardtack::rt::sha256_hex(library.data(), library.size());
  CHECK(changed_manifest(bundle, digest, std::string(64, '0')) ==
        "member lib/test.so: its SHA-256 is not the manifest's");
  CHECK(changed_manifest(bundle, digest, "xyz") == "manifest.json: member \"lib/test.so\": \"xyz\" is no SHA-256");
  std::string bytes = bundle.build();
  const size_t at = bytes.find("\"arena\"");
  REQUIRE(at != std::string::npos);
  bytes[at] = 'X';
  CHECK(load_outcome(bytes).message == "member plans/forward.test.json: its CRC-32 is wrong");
}

TEST_CASE("weights are checked by verify, and at load when asked") {
  std::string bytes = bundle_of({gather_sample()}).build();
  const float ten = 10;
  const size_t at = bytes.rfind(std::string(reinterpret_cast<const char*>(&ten), 4));
  bytes[at] = 'X';
  ht_load_options options = ht_load_options_default();
  CHECK(load_outcome(bytes, &options).code == HT_OK);
  options.verify_weights = 1;
  CHECK(load_outcome(bytes, &options).message == "member weights.safetensors: its CRC-32 is wrong");
  const TemporaryFile file(bytes);
  const Outcome verified = outcome(ht_verify_file(file.path().c_str(), nullptr, nullptr));
  CHECK(verified.code == HT_BAD_BUNDLE);
  CHECK(verified.message == file.path() + ": member weights.safetensors: its CRC-32 is wrong");
}

TEST_CASE("verify counts what it looked at") {
  const TemporaryFile file(bundle_of({add_sample(), while_sample(), gather_sample()}).build());
  ht_verify_report report = {};
  report.struct_size = sizeof report;
  const Outcome verified = outcome(ht_verify_file(file.path().c_str(), nullptr, &report));
  CHECK_MESSAGE(verified.code == HT_OK, verified.message);
  CHECK(report.num_members == 6);
  CHECK(report.num_plans == 3);
  CHECK(report.num_instructions == 2 + 5 + 1);
  CHECK(report.num_libraries == 1);
  CHECK(report.num_constants == 1);
}

TEST_CASE("what the manifest refers to is there") {
  const BundleText bundle = bundle_of({gather_sample(), count_sample()});
  CHECK(changed_manifest(bundle, "\"init\":null", "\"init\":\"nothing\"") ==
        "manifest.json: state \"count\": no constant \"nothing\"");
  CHECK(changed_manifest(bundle, "\"init\":null", "\"init\":\"table\"") ==
        "manifest.json: state \"count\" and constant \"table\" differ in dtype or size");
  CHECK(changed_manifest(bundle, "\"tensor\":\"table\"", "\"tensor\":\"chair\"") ==
        "constant \"table\": weights.safetensors has no tensor \"chair\"");
  CHECK(changed_manifest(bundle, "\"file\":\"weights.safetensors\"", "\"file\":\"lib/test.so\"") ==
        "constant \"table\": \"lib/test.so\" holds no weights");
  CHECK(changed_manifest(bundle, "\"shape\":[4],\"tensor\"", "\"shape\":[5],\"tensor\"") ==
        "constant \"table\": dtype or size differ from tensor \"table\" of weights.safetensors");
  CHECK(changed_manifest(bundle, "\"plans\":{\"cpu:test\":\"plans/gather", "\"plans\":{\"cpu:test\":\"plans/gathers") ==
        "manifest.json: entry \"gather\": no member \"plans/gathers.test.json\"");
  CHECK(changed_manifest(bundle, "\"plans\":{\"cpu:test\"", "\"plans\":{\"cpu:toast\"") ==
        "manifest.json: entry \"gather\": no plan for target cpu:test");
  CHECK(changed_manifest(bundle, "\"name\":\"count\",\"out_tree\"", "\"name\":\"gather\",\"out_tree\"") ==
        "manifest.json: entry \"gather\" twice");
  CHECK(changed_manifest(bundle, "\"signature\":null", "\"signature\":{\"algorithm\":\"rot13\"}")
            .find("unknown signature algorithm") != std::string::npos);
}

TEST_CASE("libraries are checked before they are loaded") {
  BundleText bundle = bundle_of({add_sample()});
  bundle.members["lib/test.so"] = "not code";
  CHECK(error_of(bundle) == "library lib/test.so: not an ELF file");
  bundle.members["lib/test.so"] = replaced(kernel_library(), "hardtack_kernels", "hardtack_kernelz");
  CHECK(error_of(bundle) == "library lib/test.so: it exports no hardtack_kernels");
  Sample s = add_sample();
  s.plan.kernel("no_such_kernel", {});
  CHECK(error_of(bundle_of({s})) == "plan of \"forward\": the library for cpu:test has no kernel no_such_kernel");
}

TEST_CASE("verify compares a library's machine with its target's name, as load does with this machine") {
  BundleText bundle = bundle_of({add_sample()});
  const bool x86 = kernel_library()[18] == 62;
  const std::string other = x86 ? "aarch64" : "x86-64", own = x86 ? "x86-64" : "aarch64";
  bundle.targets = {R"({"device":"cpu","library":"lib/test.so","name":"cpu:)" + other + R"(-x","requires":[]})"};
  bundle.target_names = {"cpu:" + other + "-x"};
  bundle.members.erase("plans/forward.test.json");
  Sample s = add_sample();
  s.plan.target = "cpu:" + other + "-x";
  bundle.plan(s.plan);
  const TemporaryFile file(bundle.build());
  const Outcome o = outcome(ht_verify_file(file.path().c_str(), nullptr, nullptr));
  CHECK(o.code == HT_BAD_BUNDLE);
  CHECK(o.message == file.path() + ": library lib/test.so: it is for " + own + ", expected " + other);
}

TEST_CASE("a trusted signature that cannot be had is refused in words") {
  ht_load_options options = ht_load_options_default();
  options.require_trusted_signature = 1;
  Outcome o = load_outcome(add_bundle(), &options);
  CHECK(o.code == HT_UNTRUSTED);
  CHECK(o.message == "a trusted signature is required, but the bundle is not signed");
  BundleText bundle = bundle_of({add_sample()});
  bundle.signature = "{\"algorithm\":\"ed25519\",\"public_key\":\"" + std::string(64, 'a') + "\",\"value\":\"" +
                     std::string(128, 'b') + "\"}";
  o = load_outcome(bundle.build(), &options);
  CHECK(o.code == HT_UNTRUSTED);
  CHECK(o.message == "the bundle is signed by a key that is not among the 0 trusted ones");
}

namespace {

// A bundle of constant text: it does not hold the compiled kernels, so its signature can be written down here.
BundleText signed_bundle(const std::string& value) {
  Sample s;
  const int out = s.plan.output("out", "i32", {}, {});
  s.plan.body = {s.plan.fill(out, 7)};
  s.entry.outputs = {manifest_tensor("i32", "out", {}, {})};
  BundleText bundle = bundle_of({s});
  bundle.members["lib/test.so"] = "no code";
  if (value.empty()) return bundle;
  bundle.signature =
      "{\"algorithm\":\"ed25519\",\"public_key\":\"" + std::string(kPublicKey) + "\",\"value\":\"" + value + "\"}";
  return bundle;
}

}  // namespace

TEST_CASE("a good signature by a trusted key is accepted, any other is not") {
  ht_load_options options = ht_load_options_default();
  uint8_t keys[2][32] = {};
  for (size_t i = 0; i < 32; ++i)
    keys[1][i] = static_cast<uint8_t>(std::stoi(std::string(kPublicKey).substr(2 * i, 2), nullptr, 16));
  options.inspect_only = 1;
  options.require_trusted_signature = 1;
  options.trusted_keys = keys;
  options.num_trusted_keys = 2;
  const BundleText bundle = signed_bundle(kSignature);
  CHECK(load(bundle.build(), &options).info().trusted == 1);
  BundleText changed = bundle;
  changed.producer = R"({"hardtack":"0.1.0","torch":"2.13.1"})";
  const Outcome o = load_outcome(changed.build(), &options);
  CHECK(o.code == HT_UNTRUSTED);
  CHECK(o.message == "the bundle's signature is not the trusted key's over this manifest");
  options.num_trusted_keys = 1;
  CHECK(load_outcome(bundle.build(), &options).message ==
        "the bundle is signed by a key that is not among the 1 trusted ones");
}

TEST_CASE("a signature covers the manifest with the signature null") {
  BundleText bundle = bundle_of({add_sample()});
  const std::string unsigned_text = bundle.manifest();
  bundle.signature = "{\"algorithm\":\"ed25519\",\"public_key\":\"" + std::string(64, 'a') + "\",\"value\":\"" +
                     std::string(128, 'b') + "\"}";
  CHECK(hardtack::rt::signed_bytes(bundle.manifest()) == unsigned_text);
}

TEST_CASE("any byte changed: an error or a working model, never a crash") {
  const std::string good = bundle_of({add_sample(), while_sample(), gather_sample()}).build();
  const std::string& library = kernel_library();
  const size_t code = good.find(library);
  REQUIRE(code != std::string::npos);
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  for (size_t at = 0; at < good.size(); ++at) {
    if (at == code) at += library.size();
    if (good[at] == '\0' && good[at - 1] == '\0') continue;
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] + 1);
    static_cast<void>(load_outcome(changed, &options));
  }
}
