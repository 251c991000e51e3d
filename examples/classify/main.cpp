// classify MODEL.pkg PHOTO.ppm NAMES.txt [THREADS [PROBABILITIES.f32]]: the five best classes of a photograph.
//
// The model takes u8 pixels [n, height, width, 3] and gives f32 probabilities [n, classes]: the photograph goes in as it
// lies in the file. NAMES.txt has a line a class. PROBABILITIES.f32, if named, gets all probabilities as raw floats.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <hardtack/hardtack.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace {

struct Photo {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // rows of red, green, blue
};

// Reads a binary PPM file of 8 bits a channel.
bool read_photo(const char* path, Photo* photo) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  int64_t largest = 0;
  file >> magic >> photo->width >> photo->height >> largest;
  if (!file || magic != "P6" || largest != 255 || photo->width < 1 || photo->height < 1 || photo->width > 1 << 14 ||
      photo->height > 1 << 14) {
    return false;
  }
  file.get();  // the one blank after the header
  photo->pixels.resize(static_cast<size_t>(photo->width * photo->height * 3));
  file.read(reinterpret_cast<char*>(photo->pixels.data()), static_cast<std::streamsize>(photo->pixels.size()));
  return static_cast<bool>(file);
}

std::vector<std::string> read_lines(const char* path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

int fail(const std::string& what) {
  std::fprintf(stderr, "classify: %s\n", what.c_str());
  return 1;
}

void print_best(const float* probabilities, int64_t count, const std::vector<std::string>& names) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int64_t a, int64_t b) { return probabilities[a] > probabilities[b]; };
  const int64_t shown = std::min<int64_t>(count, 5);
  std::partial_sort(order.begin(), order.begin() + shown, order.end(), likelier);
  for (int64_t i = 0; i < shown; ++i) {
    const auto at = static_cast<size_t>(order[static_cast<size_t>(i)]);
    std::printf("%4zu  %.6f  %s\n", at, static_cast<double>(probabilities[at]),
                at < names.size() ? names[at].c_str() : "");
  }
}

bool write_floats(const char* path, const float* data, int64_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(data), count * static_cast<std::streamsize>(sizeof *data));
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    std::fprintf(stderr, "usage: classify MODEL.pkg PHOTO.ppm NAMES.txt [THREADS [PROBABILITIES.f32]]\n");
    return 2;
  }
  Photo photo;
  if (!read_photo(argv[2], &photo)) return fail(std::string(argv[2]) + " is not a binary PPM file of 8 bits a channel");
  const std::vector<std::string> names = read_lines(argv[3]);

  const auto begin_load = std::chrono::steady_clock::now();
  auto model = hardtack::Model::load(argv[1]);
  if (!model.ok()) return fail(model.status().message());
  const double load_ms = milliseconds_since(begin_load);

  ht_session_options options = ht_session_options_default();
  options.num_threads = argc > 4 ? std::atoi(argv[4]) : 0;
  auto session = model->new_session(&options);
  if (!session.ok()) return fail(session.status().message());

  const auto input = hardtack::Tensor::of(photo.pixels.data(), {1, photo.height, photo.width, 3});
  auto begin = std::chrono::steady_clock::now();
  auto outputs = session->run({input});
  if (!outputs.ok()) return fail(outputs.status().message());
  const double first_ms = milliseconds_since(begin);

  std::vector<double> times(30);
  for (double& time : times) {
    begin = std::chrono::steady_clock::now();
    outputs = session->run({input});
    if (!outputs.ok()) return fail(outputs.status().message());
    time = milliseconds_since(begin);
  }
  std::nth_element(times.begin(), times.begin() + 15, times.end());

  const hardtack::Tensor& output = outputs->at(0);
  const auto* probabilities = output.data<const float>();
  print_best(probabilities, output.shape().back(), names);
  std::printf("load %.3f ms, first run %.3f ms, median %.3f ms\n", load_ms, first_ms, times[15]);
  if (argc > 5 && !write_floats(argv[5], probabilities, output.shape().back())) {
    return fail(std::string("cannot write ") + argv[5]);
  }
  return 0;
}
