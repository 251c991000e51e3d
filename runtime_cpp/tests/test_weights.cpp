// Weights outside of the bundle, and the rows of the manifest that say how weights can be replaced.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "support/samples.h"

using namespace hardtack::testing;

namespace {

BundleText outside_bundle(const std::string& name) {
  BundleText bundle = bundle_of({gather_sample()});
  bundle.external = name;
  return bundle;
}

std::string weights_of(const BundleText& bundle) { return write_safetensors(bundle.constants); }

float third_row(const hardtack::Model& model) {
  hardtack::Session session = session_of(model);
  const int64_t index[1] = {2};
  auto run = session.run({hardtack::Tensor::of(index, {1})});
  REQUIRE_MESSAGE(run.ok(), run.status().message());
  return run->at(0).data<float>()[0];
}

Outcome verified(const TemporaryFile& bundle, const char* weights_path, bool only_load = false) {
  ht_load_options options = ht_load_options_default();
  options.weights_path = weights_path;
  if (!only_load) return outcome(ht_verify_file(bundle.path().c_str(), &options, nullptr));
  ht_model* model = nullptr;
  const Outcome loaded = outcome(ht_model_load(bundle.path().c_str(), &options, &model));
  ht_model_free(model);
  return loaded;
}

// The message for a manifest with these parameters, where "table", f32[4], is made by `recipe`.
std::string recipe_error(const std::string& recipe, const std::vector<std::string>& parameters) {
  BundleText bundle = bundle_of({gather_sample()});
  bundle.parameters = parameters;
  bundle.constants[0].recipe = recipe;
  const std::string message = load_outcome(bundle.build()).message;
  const std::string prefix = "manifest.json: ";
  return message.compare(0, prefix.size(), prefix) == 0 ? message.substr(prefix.size()) : message;
}

std::string parameter(const std::string& name, const std::string& shape, const std::string& dtype = "f32",
                      const std::string& aliases = "[]") {
  return "{\"aliases\":" + aliases + ",\"dtype\":\"" + dtype + "\",\"name\":\"" + name + "\",\"shape\":" + shape + "}";
}

std::string part(const std::string& views, const std::string& packing, const std::string& into) {
  return "{\"into\":" + into + ",\"packing\":" + packing + ",\"source\":\"w\",\"views\":[" + views + "]}";
}

std::string recipe(const std::string& views, const std::string& packing = "null", const std::string& into = "null") {
  return "[" + part(views, packing, into) + "]";
}

std::string view(const std::string& offset, const std::string& shape, const std::string& strides) {
  return "{\"offset\":" + offset + ",\"shape\":" + shape + ",\"strides\":" + strides + "}";
}

}  // namespace

TEST_CASE("weights outside: beside the bundle, or where the options say") {
  const TemporaryFile anywhere("");
  const TemporaryFile beside("");
  const std::string renamed = beside.path() + ".safetensors";
  REQUIRE(std::rename(beside.path().c_str(), renamed.c_str()) == 0);
  const BundleText bundle = outside_bundle(renamed.substr(renamed.rfind('/') + 1));
  const std::string weights = weights_of(bundle);
  const TemporaryFile file(bundle.build());
  anywhere.write(weights);

  auto missing = verified(file, nullptr, true);
  CHECK(missing.code == HT_BAD_BUNDLE);
  CHECK(missing.message ==
        file.path() + ": " + renamed + " has 0 bytes; the bundle's weights have " + std::to_string(weights.size()));
  REQUIRE(::unlink(renamed.c_str()) == 0);
  missing = verified(file, nullptr, true);
  CHECK(missing.code == HT_IO);
  CHECK(missing.message == file.path() + ": cannot open " + renamed +
                               ": No such file or directory; the bundle keeps its weights there, " +
                               std::to_string(weights.size()) + " bytes");
  {
    ht_load_options options = ht_load_options_default();
    options.weights_path = anywhere.path().c_str();
    for (const int32_t copy : {0, 1}) {
      options.copy_weights = copy;
      auto model = hardtack::Model::load(file.path(), &options);
      REQUIRE_MESSAGE(model.ok(), model.status().message());
      CHECK(third_row(*model) == 30);
      CHECK(std::string(model->info().external_weights) == bundle.external);
      CHECK(model->info().weights_nbytes == weights.size());
    }
  }
  CHECK(verified(file, anywhere.path().c_str()).message == "");
  REQUIRE(std::rename(anywhere.path().c_str(), renamed.c_str()) == 0);
  auto model = hardtack::Model::load(file.path());
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  CHECK(third_row(*model) == 30);
  CHECK(verified(file, nullptr).message == "");
  ::unlink(renamed.c_str());
}

TEST_CASE("weights outside: the header is checked at load, the hash by verify and for a trusted signature") {
  const BundleText bundle = outside_bundle("w.safetensors");
  const TemporaryFile file(bundle.build());
  std::string weights = weights_of(bundle);
  weights.back() = static_cast<char>(weights.back() + 1);
  const TemporaryFile other(weights);
  CHECK(verified(file, other.path().c_str(), true).message == "");
  const Outcome refused = verified(file, other.path().c_str());
  CHECK(refused.code == HT_BAD_BUNDLE);
  CHECK(refused.message == file.path() + ": external weights w.safetensors: their SHA-256 is not the manifest's");
  weights = weights_of(bundle);
  weights[8] = '[';
  other.write(weights);
  CHECK(verified(file, other.path().c_str(), true).code == HT_BAD_BUNDLE);
  weights = replaced(weights_of(bundle), "\"table\"", "\"chair\"");
  other.write(weights);
  CHECK(verified(file, other.path().c_str(), true).message ==
        file.path() + ": constant \"table\": w.safetensors has no tensor \"table\"");
}

TEST_CASE("weights outside: what a bundle in memory, one that needs none, and inspection do") {
  const BundleText bundle = outside_bundle("w.safetensors");
  Outcome o = load_outcome(bundle.build());
  CHECK(o.code == HT_INVALID_ARGUMENT);
  CHECK(o.message ==
        "the bundle keeps its weights in \"w.safetensors\"; name that file in ht_load_options.weights_path");
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  CHECK(load(bundle.build(), &options).info().num_constants == 1);
  options.inspect_only = 0;
  options.weights_path = "/nowhere/w.safetensors";
  o = load_outcome(bundle_of({gather_sample()}).build(), &options);
  CHECK(o.code == HT_INVALID_ARGUMENT);
  CHECK(o.message == "the bundle holds its weights itself; the file /nowhere/w.safetensors is not needed");
}

TEST_CASE("the external file's row") {
  CHECK(load_outcome(outside_bundle("a/w.safetensors").build()).message ==
        "manifest.json: \"a/w.safetensors\" cannot name an external .safetensors file");
  CHECK(load_outcome(outside_bundle("weights.bin").build()).message ==
        "manifest.json: \"weights.bin\" cannot name an external .safetensors file");
  BundleText unused = outside_bundle("w.safetensors");
  unused.constants.clear();
  unused.entries.clear();
  unused.plan(add_sample().plan);
  unused.entries.push_back(add_sample().entry);
  CHECK(load_outcome(unused.build()).message.find("the external file \"w.safetensors\" holds no constant") !=
        std::string::npos);
}

TEST_CASE("recipes: the source exists and no view leaves it") {
  const std::vector<std::string> eight = {parameter("w", "[2,4]")};
  CHECK(recipe_error(recipe(view("4", "[4]", "[1]")), eight) == "");
  CHECK(recipe_error(recipe(view("7", "[4]", "[-1]")), eight) == "");
  CHECK(recipe_error(recipe(view("0", "[4,2]", "[1,4]") + "," + view("1", "[4]", "[2]")), eight) == "");
  CHECK(recipe_error(recipe("", R"({"kind":"panels","params":[1]})"), eight) == "");
  CHECK(recipe_error(recipe(""), eight) == "constant \"table\" has another size than its recipe makes of \"w\"");
  CHECK(recipe_error(recipe(view("4", "[4]", "[1]")), {}) == "constant \"table\": no parameter \"w\"");
  CHECK(recipe_error(recipe(view("4", "[4]", "[1]")), {parameter("w", "[2,4]", "i32")}) ==
        "constant \"table\" has another dtype than its source \"w\"");
  const std::string leaves = "constant \"table\": a view of its recipe leaves \"w\"";
  CHECK(recipe_error(recipe(view("5", "[4]", "[1]")), eight) == leaves);
  CHECK(recipe_error(recipe(view("2", "[4]", "[-1]")), eight) == leaves);
  CHECK(recipe_error(recipe(view("0", "[4]", "[4611686018427387904]")), eight) == leaves);
  CHECK(recipe_error(recipe(view("9223372036854775807", "[4]", "[1]")), eight) == leaves);
  CHECK(recipe_error(recipe(view("-1", "[4]", "[1]")), eight).find("a bad view") != std::string::npos);
  CHECK(recipe_error(recipe(view("0", "[4]", "[1,1]")), eight).find("a bad view") != std::string::npos);
  const std::string two = view("0", "[2]", "[1]");
  const auto both = [&two](const std::string& into) {
    return "[" + part(two, "null", view("0", "[2]", "[1]")) + "," + part(two, "null", into) + "]";
  };
  const std::string beyond = "constant \"table\": what is made of \"w\" goes beyond it";
  CHECK(recipe_error(both(view("2", "[2]", "[1]")), eight) == "");
  CHECK(recipe_error(both(view("3", "[2]", "[-2]")), eight) == "");
  CHECK(recipe_error(both(view("3", "[2]", "[1]")), eight) == beyond);
  CHECK(recipe_error(both(view("1", "[2]", "[-2]")), eight) == beyond);
  CHECK(recipe_error(both(view("2", "[1]", "[1]")), eight) ==
        "constant \"table\" has another size than its recipe makes of \"w\"");
  CHECK(recipe_error(both(view("2", "[2]", "[1,1]")), eight).find("a bad view") != std::string::npos);
  CHECK(recipe_error("[]", eight).find("a recipe of nothing") != std::string::npos);
  CHECK(recipe_error("null", {parameter("w", "[1]"), parameter("v", "[1]")}) == "parameter \"v\" is out of order");
  CHECK(recipe_error("null", {parameter("w", "[1]"), parameter("w", "[1]")}) == "parameter \"w\" is out of order");
  CHECK(recipe_error("null", {parameter("w", "[1]", "f32", R"(["b","a"])")}).find("aliases out of order") !=
        std::string::npos);
}
