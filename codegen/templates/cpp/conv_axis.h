// One axis of a convolution, and which of its outputs have all taps inside the input.
#ifndef HARDTACK_TEMPLATES_CONV_AXIS_H
#define HARDTACK_TEMPLATES_CONV_AXIS_H

#include "parallel.h"

namespace ht {

// One axis of a convolution: output q under tap t reads input q * stride + origin + t * step, if that is in [0, size);
// tap t is filter position first_tap + t * tap_step.
struct ConvAxis {
  int64_t outputs, size, stride;
  int64_t taps, first_tap, tap_step;
  int64_t origin, step;

  // Where an output's first tap may lie for all its taps to be inside the input; empty when that cannot be.
  HT_MEMBER Range interior() const {
    const int64_t last = (taps - 1) * step, begin = most(0, -last);
    return {begin, most(begin, size - most(0, last))};
  }
};

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_CONV_AXIS_H
