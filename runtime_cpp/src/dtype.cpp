#include "dtype.h"

#include "status.h"

namespace hardtack::rt {
namespace {

struct Row {
  DType dtype;
  const char* name;
  const char* safetensors;
  uint8_t nbytes;
  uint8_t dl_code;
  uint8_t since;
};

// In the order of the enum.
constexpr Row kRows[] = {
    {DType::f32, "f32", "F32", 4, 2, 1},
    {DType::f64, "f64", "F64", 8, 2, 1},
    {DType::f16, "f16", "F16", 2, 2, 1},
    {DType::bf16, "bf16", "BF16", 2, 4, 1},
    {DType::i8, "i8", "I8", 1, 0, 1},
    {DType::i16, "i16", "I16", 2, 0, 1},
    {DType::i32, "i32", "I32", 4, 0, 1},
    {DType::i64, "i64", "I64", 8, 0, 1},
    {DType::u8, "u8", "U8", 1, 1, 1},
    {DType::boolean, "bool", "BOOL", 1, 6, 1},
    {DType::u16, "u16", "U16", 2, 1, 2},
    {DType::u32, "u32", "U32", 4, 1, 2},
    {DType::f8e4m3fn, "f8e4m3fn", "F8_E4M3", 1, 10, 2},
    {DType::f8e5m2, "f8e5m2", "F8_E5M2", 1, 12, 2},
    {DType::f8e8m0fnu, "f8e8m0fnu", "F8_E8M0", 1, 14, 2},
    {DType::c64, "c64", nullptr, 8, 5, 4},
    {DType::c128, "c128", nullptr, 16, 5, 4},
};

const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

const char* dtype_name(DType dtype) { return row(dtype).name; }
int64_t itemsize(DType dtype) { return row(dtype).nbytes; }
int64_t dtype_since(DType dtype) { return row(dtype).since; }

DType part_dtype(DType dtype) {
  if (dtype == DType::c64) return DType::f32;
  return dtype == DType::c128 ? DType::f64 : dtype;
}

DType complex_dtype(DType part) { return part == DType::f32 ? DType::c64 : DType::c128; }

ht_dtype dl_dtype(DType dtype) { return ht_dtype{row(dtype).dl_code, static_cast<uint8_t>(row(dtype).nbytes * 8), 1}; }

bool dtype_from_name(std::string_view name, DType* dtype) {
  for (const Row& r : kRows) {
    if (name == r.name) return *dtype = r.dtype, true;
  }
  return false;
}

bool dtype_from_safetensors(std::string_view name, DType* dtype) {
  for (const Row& r : kRows) {
    if (r.safetensors != nullptr && name == r.safetensors) return *dtype = r.dtype, true;
  }
  return false;
}

bool dtype_from_dl(ht_dtype dl, DType* dtype) {
  for (const Row& r : kRows) {
    if (dl.code == r.dl_code && dl.bits == r.nbytes * 8 && dl.lanes == 1) return *dtype = r.dtype, true;
  }
  return false;
}

}  // namespace hardtack::rt

extern "C" {

const char* ht_dtype_name(ht_dtype dtype) {
  hardtack::rt::DType found;
  return hardtack::rt::dtype_from_dl(dtype, &found) ? hardtack::rt::dtype_name(found) : nullptr;
}

ht_status* ht_dtype_from_name(const char* name, ht_dtype* dtype) {
  hardtack::rt::DType found;
  if (name == nullptr || dtype == nullptr || !hardtack::rt::dtype_from_name(name, &found)) {
    return hardtack::rt::error(HT_INVALID_ARGUMENT, "unknown dtype \"%s\"", name == nullptr ? "" : name).release();
  }
  *dtype = hardtack::rt::dl_dtype(found);
  return nullptr;
}

}  // extern "C"
