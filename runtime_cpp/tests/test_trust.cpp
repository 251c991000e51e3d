// What is hashed is what is used: files that change while they are loaded, and files of trusted keys.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <locale>
#include <set>

#include "c_api.h"
#include "support/samples.h"

using namespace hardtack::testing;
using hardtack::rt::Bytes;
using hardtack::rt::Source;
using hardtack::rt::Status;

namespace {

class View : public Bytes {
 public:
  explicit View(std::shared_ptr<const std::string> text) : text_(std::move(text)) {
    data_ = reinterpret_cast<const uint8_t*>(text_->data());
    nbytes_ = text_->size();
  }

 private:
  std::shared_ptr<const std::string> text_;
};

// A file that somebody overwrites in place, with other bytes and back, at the reads that are listed. A copy is made of
// two reads.
class ChangingFile : public Source {
 public:
  ChangingFile(const std::string& good, std::string bad, std::set<int> when, int* num_reads)
      : text_(std::make_shared<std::string>(good)), other_(std::move(bad)), when_(std::move(when)), reads_(*num_reads) {
    nbytes_ = good.size();
  }

  Status read(uint64_t offset, uint64_t nbytes, void* to) const override {
    if (when_.count(++reads_) > 0) swap();
    std::memcpy(to, text_->data() + offset, nbytes);
    return Status();
  }
  Status check_unchanged() const override { return Status(); }  // sizes and dates can be set back
  Status hold(bool copy, std::shared_ptr<const Bytes>* bytes) const override {
    if (!copy) return *bytes = std::make_shared<View>(text_), Status();
    auto held = std::make_shared<std::string>(nbytes_, '\0');
    const uint64_t half = nbytes_ / 2;
    HT_RETURN_IF_ERROR(read(0, half, held->data()));
    HT_RETURN_IF_ERROR(read(half, nbytes_ - half, held->data() + half));
    *bytes = std::make_shared<View>(std::move(held));
    return Status();
  }
  bool is_immutable() const override { return false; }
  uint64_t hole_nbytes(uint64_t, uint64_t) const override { return 0; }

  void swap() const {
    const std::string before = *text_;
    std::memcpy(text_->data(), other_.data(), nbytes_);
    other_ = before;
  }

 private:
  std::shared_ptr<std::string> text_;
  mutable std::string other_;
  std::set<int> when_;
  int& reads_;
};

float third_row(ht_model* model) {
  ht_session* handle = nullptr;
  REQUIRE(ht_session_create(model, nullptr, &handle) == nullptr);
  const int64_t index[1] = {2};
  ht_tensor output = {};
  const hardtack::Tensor input = hardtack::Tensor::of(index, {1});
  const ht_tensor given = input.c_tensor();
  const Outcome run = outcome(ht_session_run(handle, nullptr, &given, 1, &output, 1));
  REQUIRE_MESSAGE(run.code == HT_OK, run.message);
  const float value = *static_cast<const float*>(output.data);
  ht_session_free(handle);
  return value;
}

bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
  return text.find(name) != std::string::npos;
}

// The same bundle with other weights and other code in it, whose hashes are wrong.
std::string tampered(const std::string& good) {
  std::string bad = good;
  const float thirty = 30, other = 31;
  std::memcpy(&bad[good.rfind(std::string(reinterpret_cast<const char*>(&thirty), 4))], &other, 4);
  bad[good.find(kernel_library()) + kernel_library().size() / 2] ^= 1;
  return bad;
}

}  // namespace

TEST_CASE("a file that changes while it is loaded and hashed: its own numbers or a refusal") {
  const std::string good = bundle_of({gather_sample()}).build();
  const std::string bad = tampered(good);
  ht_load_options options = ht_load_options_default();
  options.verify_weights = 1;
  int num_reads = 0, loaded = 0, refused = 0;
  for (int first = 0; first < 40; ++first) {
    for (int second = first; second < 40; ++second) {
      num_reads = 0;
      auto file = std::make_unique<ChangingFile>(good, bad, std::set<int>{first, second}, &num_reads);
      std::shared_ptr<const hardtack::rt::Model> model;
      const Status status = hardtack::rt::Model::load(std::move(file), nullptr, options, &model);
      if (!status.ok()) {
        CHECK_MESSAGE(status.code() == HT_BAD_BUNDLE, status.message());
        ++refused;
        continue;
      }
      ++loaded;
      ht_model handle{model};
      CHECK(third_row(&handle) == 30);
    }
  }
  CHECK(num_reads < 40);  // every read had its turn
  CHECK(loaded > 100);
  CHECK(refused > 100);
}

TEST_CASE("weights that were hashed are not those of a file that changes later") {
  const std::string good = bundle_of({gather_sample()}).build();
  const TemporaryFile file(good);
  for (const int32_t hashed : {1, 0}) {
    ht_load_options options = ht_load_options_default();
    options.verify_weights = hashed;
    ht_model* model = nullptr;
    REQUIRE(ht_model_load(file.path().c_str(), &options, &model) == nullptr);
    const int fd = ::open(file.path().c_str(), O_WRONLY);
    REQUIRE(::pwrite(fd, tampered(good).data(), good.size(), 0) == static_cast<ssize_t>(good.size()));
    CHECK(third_row(model) == (hashed != 0 ? 30 : 31));  // a mapping shows it: the test sees what it is to see
    REQUIRE(::pwrite(fd, good.data(), good.size(), 0) == static_cast<ssize_t>(good.size()));
    ::close(fd);
    ht_model_free(model);
  }
}

TEST_CASE("a sealed file is mapped, and shared, even where it is hashed") {
  const std::string good = bundle_of({gather_sample()}).build();
  ht_load_options options = ht_load_options_default();
  options.verify_weights = 1;
  for (const bool sealed : {true, false}) {
    const int fd = ::memfd_create("bundle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::write(fd, good.data(), good.size()) == static_cast<ssize_t>(good.size()));
    if (sealed) REQUIRE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    std::unique_ptr<Source> source;
    REQUIRE(hardtack::rt::open_file("/proc/self/fd/" + std::to_string(fd), &source).ok());
    CHECK(source->is_immutable() == sealed);
    std::shared_ptr<const hardtack::rt::Model> model;
    REQUIRE(hardtack::rt::Model::load(std::move(source), nullptr, options, &model).ok());
    ht_model handle{model};
    CHECK(third_row(&handle) == 30);
    CHECK(is_mapped("memfd:bundle") == sealed);
    ::close(fd);
  }
}

TEST_CASE("the language of the host does not say what separates words in a file of trusted keys") {
  std::vector<std::ctype_base::mask> table(std::ctype<char>::classic_table(),
                                           std::ctype<char>::classic_table() + std::ctype<char>::table_size);
  table[0xA0] |= std::ctype_base::space;
  const std::locale before = std::locale::global(std::locale(std::locale(), new std::ctype<char>(table.data())));
  const TemporaryFile keys(std::string(64, 'a') + "\nminilm\xA0" + "7\n");
  const Outcome o = outcome(ht_check_trusted_keys(keys.path().c_str()));
  std::locale::global(before);
  CHECK(o.code == HT_INVALID_ARGUMENT);
}

TEST_CASE("a file of trusted keys is checked in words, and only where signatures are") {
  const TemporaryFile keys(std::string(64, 'a') + "  # release\n\nminilm 7\n");
  CHECK(outcome(ht_check_trusted_keys(keys.path().c_str())).message == "");
  keys.write(std::string(32, 'F') + std::string(32, '0'));
  CHECK(outcome(ht_check_trusted_keys(keys.path().c_str())).message == "");
  const std::string key(63, 'a');
  Outcome o;
  for (const std::string& line : {std::string("minilm seven"), std::string("minilm 07"), std::string("minilm -1"),
                                  std::string("minilm 9223372036854775808"), std::string("minilm 92233720368547758070"),
                                  std::string("minilm"), std::string("minilm 1 2"), key, key + "g", key + "G",
                                  key + "/", key + ":", key + "@", key + "a 1 2", std::string(256, 'm') + " 1"}) {
    keys.write(line + "\n");
    o = outcome(ht_check_trusted_keys(keys.path().c_str()));
    CHECK(o.code == HT_INVALID_ARGUMENT);
    CHECK_MESSAGE(o.message == keys.path() +
                                   ": line 1: expected a public key of 64 hexadecimal digits, or the name of a model "
                                   "and its lowest version",
                  line);
  }
  keys.write(std::string((1 << 20) + 1, '\n'));
  o = outcome(ht_check_trusted_keys(keys.path().c_str()));
  CHECK(o.message == keys.path() + " has 1048577 bytes; a file of trusted keys has at most 1048576");
  o = outcome(ht_check_trusted_keys("/nowhere/keys"));
  CHECK(o.code == HT_IO);
  CHECK(o.message == "cannot open /nowhere/keys: No such file or directory");
  CHECK(outcome(ht_check_trusted_keys(nullptr)).code == HT_INVALID_ARGUMENT);
  ht_load_options options = ht_load_options_default();
  options.signed_model = "minilm";
  o = load_outcome(add_bundle(), &options);
  CHECK(o.code == HT_INVALID_ARGUMENT);
  CHECK(o.message == "ht_load_options.signed_model is given, but no keys to trust");
  options.struct_size = offsetof(ht_load_options, trusted_keys_path);  // of an older header
  CHECK(load_outcome(add_bundle(), &options).message == "");
}
