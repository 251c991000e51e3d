/** @file
 * Tensors as Hardtack's headers have them: DLPack's DLTensor. Include <dlpack/dlpack.h> first and ht_tensor is that very
 * type; otherwise it is a struct of the same layout. C99 and C++17; freestanding, as kernels are.
 */
#ifndef HARDTACK_TENSOR_H
#define HARDTACK_TENSOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DLPACK_DLPACK_H_
typedef DLDataType ht_dtype;
typedef DLDevice ht_device;
typedef DLTensor ht_tensor;
#else
/** code: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex (bits of both parts), 6 bool, 10 float8_e4m3fn,
    12 float8_e5m2, 14 float8_e8m0fnu (DLDataTypeCode). lanes is 1. */
typedef struct ht_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} ht_dtype;

/** device_type (DLDeviceType): 1 the CPU, 2 CUDA, 3 page-locked host memory of CUDA, 13 managed memory of CUDA. */
typedef struct ht_device {
  int32_t device_type;
  int32_t device_id;
} ht_device;

/** The elements start at data + byte_offset. Strides count elements; NULL strides mean contiguous, the last dimension
 * innermost. shape may be NULL when ndim is 0. */
typedef struct ht_tensor {
  void* data;
  ht_device device;
  int32_t ndim;
  ht_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} ht_tensor;
#endif

#ifdef __cplusplus
}
#endif

#endif /* HARDTACK_TENSOR_H */
