// Which elements of the plan's values are written, on the path that a proof walks (docs/plan.md, "What is proved at load").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hardtack::rt {

/// `size` elements, `stride` apart.
struct BoxDim {
  int64_t size = 0, stride = 0;
  bool operator==(const BoxDim& o) const { return size == o.size && stride == o.stride; }
};

/// The elements offset + sum(i * stride), i below each size: sizes above 1, strides positive and each below the one before.
struct Box {
  int64_t offset = 0;
  std::vector<BoxDim> dims;
  bool operator==(const Box& o) const { return offset == o.offset && dims == o.dims; }
};

/// The box of these dimensions in any order, with any strides, none of them empty. It lies inside a value.
Box make_box(int64_t offset, const std::vector<BoxDim>& dims);

/// Which values are whole, and the parts of the others. Inside a branch everything is noted that changes, to be undone.
class Written {
 public:
  explicit Written(size_t num_values) : whole_(num_values, false), parts_(num_values) {}

  bool whole(uint32_t v) const { return whole_[v]; }
  void set_whole(uint32_t v);
  /// Another part of a value of `numel` elements.
  void add(uint32_t v, int64_t numel, Box box);
  /// Dimensions that `add` has compared.
  uint64_t work() const { return work_; }

  /// Begins a branch. Branches nest.
  size_t enter();
  /// Back to how it was before the branch; says which values had become whole in it.
  std::vector<uint32_t> leave(size_t entered);

 private:
  enum class Change : uint8_t { became_whole, part_added, part_removed };
  struct Noted {
    Change change;
    uint32_t value;
    size_t at;  // of the part that was removed
    Box part;
  };

  void note(Change change, uint32_t v, size_t at, Box part);

  std::vector<bool> whole_;
  std::vector<std::vector<Box>> parts_;
  std::vector<Noted> noted_;
  size_t depth_ = 0;
  uint64_t work_ = 0;
};

}  // namespace hardtack::rt
