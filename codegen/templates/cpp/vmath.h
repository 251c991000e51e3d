// Elementary functions on vec<float> and vec<double> of simd.h: names as in the scalar op table with a v before them.
#ifndef HARDTACK_TEMPLATES_VMATH_H
#define HARDTACK_TEMPLATES_VMATH_H

#include "vmath_base.h"
#include "vmath_erf.h"
#include "vmath_exp.h"
#include "vmath_gamma.h"
#include "vmath_log.h"
#include "vmath_mod.h"
#include "vmath_trig.h"

#endif  // HARDTACK_TEMPLATES_VMATH_H
