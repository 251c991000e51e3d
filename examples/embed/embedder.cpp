#include "embedder.h"

#include <algorithm>
#include <cstdio>

std::string Embedder::open(const char* bundle, const char* vocabulary) {
  if (!pieces_.read(vocabulary)) return std::string(vocabulary) + " is no vocabulary with [UNK], [CLS] and [SEP]";
  auto model = hardtack::Model::load(bundle);
  if (!model.ok()) return model.status().message();
  // What the entry point takes is asked of the bundle: how many lines at once, and how many tokens a line.
  const ht_tensor_info *ids = model->input(0, 0), *mask = model->input(0, 1), *out = model->output(0, 0);
  if (ids == nullptr || mask == nullptr || out == nullptr || ids->ndim != 2 || out->ndim != 2) {
    return std::string(bundle) + " does not take ids [n, length] and a mask";
  }
  most_lines_ = static_cast<std::size_t>(std::min<std::int64_t>(ids->shape[0].hi, 256));
  most_tokens_ = static_cast<std::size_t>(std::min<std::int64_t>(ids->shape[1].hi, 512));
  auto session = model->new_session();
  if (!session.ok()) return session.status().message();
  session_ = std::move(*session);
  return "";
}

std::string Embedder::embed(const std::vector<std::string>& lines, std::vector<std::vector<float>>& out) {
  std::vector<std::vector<std::int64_t>> rows;
  std::size_t length = 0;
  for (const std::string& line : lines) {
    rows.push_back(tokens(line));
    length = std::max(length, rows.back().size());
  }
  std::vector<std::int64_t> ids(rows.size() * length, 0), mask(rows.size() * length, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), ids.begin() + static_cast<std::ptrdiff_t>(i * length));
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(i * length), rows[i].size(), 1);
  }
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(length)};
  auto results = session_.run({hardtack::Tensor::of(ids.data(), shape), hardtack::Tensor::of(mask.data(), shape)});
  if (!results.ok()) return results.status().message();
  const hardtack::Tensor& embeddings = results->at(0);  // valid until the next run: copied out
  const auto width = static_cast<std::size_t>(embeddings.shape()[1]);
  const auto* data = embeddings.data<const float>();
  for (std::size_t i = 0; i < rows.size(); ++i) out.emplace_back(data + i * width, data + (i + 1) * width);
  return "";
}

std::string text_of(const std::vector<float>& embedding) {
  std::string text;
  char number[32];
  for (const float x : embedding) {
    std::snprintf(number, sizeof number, "%.9g", static_cast<double>(x));
    if (!text.empty()) text += ' ';
    text += number;
  }
  return text + "\n";
}
