// Element types: docs/plan.md's names, sizes and DLPack's codes in one table.
#pragma once

#include <hardtack/hardtack.h>

#include <string_view>

namespace hardtack::rt {

enum class DType : uint8_t {
  f32,
  f64,
  f16,
  bf16,
  i8,
  i16,
  i32,
  i64,
  u8,
  boolean,
  u16,
  u32,
  f8e4m3fn,
  f8e5m2,
  f8e8m0fnu,
  c64,  // of interfaces only: plans and constants have the two parts of an element, see part_dtype
  c128
};

/// The name in plans: "f32".
const char* dtype_name(DType dtype);
/// Bytes of one element.
int64_t itemsize(DType dtype);
ht_dtype dl_dtype(DType dtype);
/// The type of the real and the imaginary part of complex numbers; any other type is itself.
DType part_dtype(DType dtype);
/// The type of the complex numbers whose parts these are: of f32 or f64.
DType complex_dtype(DType part);
inline bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }
/// The first format of bundles that has it.
int64_t dtype_since(DType dtype);

[[nodiscard]] bool dtype_from_name(std::string_view name, DType* dtype);
/// From the name in safetensors headers: "F32". Complex numbers have none.
[[nodiscard]] bool dtype_from_safetensors(std::string_view name, DType* dtype);
[[nodiscard]] bool dtype_from_dl(ht_dtype dl, DType* dtype);

}  // namespace hardtack::rt
