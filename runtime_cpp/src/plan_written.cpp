#include "plan_written.h"

#include <algorithm>
#include <cstdlib>

namespace hardtack::rt {
namespace {

constexpr size_t kMaxParts = 64;  // of a value that are kept apart; one in more pieces counts as not written

// The dimension in which `b` goes on where `a` ends, with its size in both of them; size 0: there is none.
BoxDim joint(const Box& a, const Box& b) {
  const std::vector<BoxDim>&x = a.dims, &y = b.dims;
  const int64_t distance = b.offset - a.offset;
  const auto differ = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
  const auto in_x = differ.first, in_y = differ.second;
  const auto ends_alike = [&](std::ptrdiff_t skip_x, std::ptrdiff_t skip_y) {
    return std::equal(in_x + skip_x, x.end(), in_y + skip_y, y.end());
  };
  if (x.size() == y.size() + 1) {  // b is one element long there
    if (in_x->size * in_x->stride == distance && ends_alike(1, 0)) return {in_x->size + 1, in_x->stride};
  } else if (x.size() + 1 == y.size()) {
    if (in_y->stride == distance && ends_alike(0, 1)) return {1 + in_y->size, in_y->stride};
  } else if (x.size() != y.size()) {
    return {};
  } else if (in_x != x.end()) {
    if (in_x->stride == in_y->stride && in_x->size * in_x->stride == distance && ends_alike(1, 1))
      return {in_x->size + in_y->size, in_x->stride};
  } else {
    for (const BoxDim& d : x) {
      if (d.size * d.stride == distance) return {2 * d.size, d.stride};
    }
    if (distance == 1 && (x.empty() || x.back().stride > 1)) return {2, 1};
  }
  return {};
}

// The elements of both, where they are a box: the same one, or one goes on in one dimension where the other ends.
bool join(const Box& x, const Box& y, Box* both) {
  const Box &a = x.offset <= y.offset ? x : y, &b = x.offset <= y.offset ? y : x;
  if (a.offset == b.offset) {
    *both = a;
    return a == b;
  }
  const BoxDim in = joint(a, b);
  if (in.size == 0) return false;
  std::vector<BoxDim> dims;
  for (const BoxDim& d : a.dims) {
    if (d.stride != in.stride) dims.push_back(d);
  }
  dims.push_back(in);
  *both = make_box(a.offset, dims);
  return true;
}

bool is_whole(const Box& box, int64_t numel) {
  if (box.offset != 0) return false;
  return numel == 1 ? box.dims.empty() : box.dims.size() == 1 && box.dims[0] == BoxDim{numel, 1};
}

}  // namespace

Box make_box(int64_t offset, const std::vector<BoxDim>& dims) {
  Box box = {offset, {}};
  std::vector<BoxDim> sorted;
  for (const BoxDim& d : dims) {
    if (d.size == 1 || d.stride == 0) continue;
    if (d.stride < 0) box.offset += (d.size - 1) * d.stride;
    sorted.push_back({d.size, std::abs(d.stride)});
  }
  std::sort(sorted.begin(), sorted.end(), [](const BoxDim& a, const BoxDim& b) { return a.stride > b.stride; });
  size_t num_apart = 0;  // strides: together, two dimensions of one stride reach every multiple of it
  for (const BoxDim& d : sorted) {
    if (num_apart > 0 && sorted[num_apart - 1].stride == d.stride)
      sorted[num_apart - 1].size += d.size - 1;
    else
      sorted[num_apart++] = d;
  }
  sorted.resize(num_apart);
  for (const BoxDim& d : sorted) {
    if (!box.dims.empty() && box.dims.back().stride == d.size * d.stride)
      box.dims.back() = {box.dims.back().size * d.size, d.stride};
    else
      box.dims.push_back(d);
  }
  return box;
}

void Written::note(Change change, uint32_t v, size_t at, Box part) {
  if (depth_ > 0) noted_.push_back({change, v, at, std::move(part)});
}

void Written::set_whole(uint32_t v) {
  if (whole_[v]) return;
  whole_[v] = true;
  note(Change::became_whole, v, 0, {});
  if (depth_ == 0) parts_[v] = {};
}

void Written::add(uint32_t v, int64_t numel, Box box) {
  if (whole_[v]) return;
  std::vector<Box>& parts = parts_[v];
  for (size_t i = 0; i < parts.size() && !is_whole(box, numel);) {
    work_ += 1 + box.dims.size();
    Box both;
    if (!join(parts[i], box, &both)) {
      ++i;
      continue;
    }
    note(Change::part_removed, v, i, std::move(parts[i]));
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    box = std::move(both);
    i = 0;
  }
  if (is_whole(box, numel)) return set_whole(v);
  if (parts.size() == kMaxParts) return;
  parts.push_back(std::move(box));
  note(Change::part_added, v, 0, {});
}

size_t Written::enter() {
  ++depth_;
  return noted_.size();
}

std::vector<uint32_t> Written::leave(size_t entered) {
  std::vector<uint32_t> were_whole;
  for (; noted_.size() > entered; noted_.pop_back()) {
    Noted& last = noted_.back();
    std::vector<Box>& parts = parts_[last.value];
    switch (last.change) {
      case Change::became_whole:
        were_whole.push_back(last.value);
        whole_[last.value] = false;
        break;
      case Change::part_added: parts.pop_back(); break;
      case Change::part_removed:
        parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(last.at), std::move(last.part));
        break;
    }
  }
  --depth_;
  return were_whole;
}

}  // namespace hardtack::rt
