// train MODEL.pkg SAMPLES.f32 [--epochs N] [--batch B] [--rate R]: trains a classifier of points in the plane.
//
// The bundle has two entry points that share states: `train` takes points f32 [n, 2], their classes i64 [n] and the learning
// rate f32 [], changes the parameters and what Adam keeps of them, which are states of the session, and gives the loss;
// `predict` takes points and gives logits f32 [n, classes]. SAMPLES.f32 has for each sample x, y and the class, as floats.
// What is printed: the loss of each tenth epoch, the last learned, and how many samples are in their class then.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <hardtack/hardtack.hpp>
#include <string>
#include <vector>

namespace {

struct Options {
  std::int64_t epochs = 60, batch = 32;
  float rate = 0.02F;
};

struct Samples {
  std::vector<float> points;  // x, y
  std::vector<std::int64_t> classes;
  std::int64_t count() const { return static_cast<std::int64_t>(classes.size()); }
};

int fail(const std::string& what) {
  std::fprintf(stderr, "train: %s\n", what.c_str());
  return 1;
}

bool read_samples(const char* path, Samples* samples) {
  std::ifstream file(path, std::ios::binary);
  float row[3];
  while (file.read(reinterpret_cast<char*>(row), sizeof row)) {
    samples->points.insert(samples->points.end(), row, row + 2);
    samples->classes.push_back(static_cast<std::int64_t>(row[2]));
  }
  return samples->count() > 0;
}

// The mean loss over all batches in the order of the file; gives what went wrong, or "".
std::string train_epoch(hardtack::Session& session, const Samples& samples, const Options& options, float rate,
                        double* loss) {
  double sum = 0;
  for (std::int64_t at = 0; at < samples.count(); at += options.batch) {
    const std::int64_t n = std::min(options.batch, samples.count() - at);
    const auto made =
        session.run({hardtack::Tensor::of(samples.points.data() + 2 * at, {n, 2}),
                     hardtack::Tensor::of(samples.classes.data() + at, {n}), hardtack::Tensor::of(&rate, {})},
                    "train");
    if (!made.ok()) return made.status().message();
    sum += static_cast<double>(*made->at(0).data<const float>()) * static_cast<double>(n);
  }
  *loss = sum / static_cast<double>(samples.count());
  return "";
}

std::string count_right(hardtack::Session& session, const Samples& samples, std::int64_t* right) {
  const auto made = session.run({hardtack::Tensor::of(samples.points.data(), {samples.count(), 2})}, "predict");
  if (!made.ok()) return made.status().message();
  const std::int64_t classes = made->at(0).shape()[1];
  const auto* logits = made->at(0).data<const float>();
  *right = 0;
  for (std::int64_t i = 0; i < samples.count(); ++i) {
    const float* row = logits + i * classes;
    const std::int64_t likeliest = std::max_element(row, row + classes) - row;
    *right += likeliest == samples.classes[static_cast<std::size_t>(i)] ? 1 : 0;
  }
  return "";
}

bool read_options(int argc, char** argv, Options* options) {
  if (argc % 2 == 0) return false;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    char* end = nullptr;
    const double value = std::strtod(argv[i + 1], &end);
    if (*end != '\0' || !(value > 0 && value <= 1e6)) return false;
    if (name == "--epochs" && value >= 1) {
      options->epochs = static_cast<std::int64_t>(value);
    } else if (name == "--batch" && value >= 1) {
      options->batch = static_cast<std::int64_t>(value);
    } else if (name == "--rate") {
      options->rate = static_cast<float>(value);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 3 || !read_options(argc, argv, &options)) {
    std::fprintf(stderr, "usage: train MODEL.pkg SAMPLES.f32 [--epochs N] [--batch B] [--rate R]\n");
    return 2;
  }
  Samples samples;
  if (!read_samples(argv[2], &samples)) return fail(std::string("there are no samples in ") + argv[2]);
  auto model = hardtack::Model::load(argv[1]);
  if (!model.ok()) return fail(model.status().message());
  if (ht_model_find_entry(model->get(), "train") == SIZE_MAX ||
      ht_model_find_entry(model->get(), "predict") == SIZE_MAX)
    return fail(std::string(argv[1]) + " has no entry points `train` and `predict`");
  auto session = model->new_session();
  if (!session.ok()) return fail(session.status().message());

  for (std::int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    // The learning rate falls to nothing, a line from the first epoch to the one behind the last.
    const float rate = options.rate * (1 - static_cast<float>(epoch - 1) / static_cast<float>(options.epochs));
    double loss = 0;
    if (const std::string wrong = train_epoch(*session, samples, options, rate, &loss); !wrong.empty())
      return fail(wrong);
    if (epoch % 10 == 0 || epoch == options.epochs)
      std::printf("epoch %lld loss %.6f\n", static_cast<long long>(epoch), loss);
  }
  std::int64_t right = 0;
  if (const std::string wrong = count_right(*session, samples, &right); !wrong.empty()) return fail(wrong);
  std::printf("right %lld of %lld\n", static_cast<long long>(right), static_cast<long long>(samples.count()));
  return 0;
}
