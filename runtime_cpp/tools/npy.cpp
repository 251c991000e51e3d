#include "npy.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace hardtack::tools {
namespace {

struct Row {
  const char* descr;
  ht_dtype dtype;
};

constexpr Row kRows[] = {{"<f4", {2, 32, 1}}, {"<f8", {2, 64, 1}}, {"<f2", {2, 16, 1}}, {"|i1", {0, 8, 1}},
                         {"<i2", {0, 16, 1}}, {"<i4", {0, 32, 1}}, {"<i8", {0, 64, 1}}, {"|u1", {1, 8, 1}},
                         {"|b1", {6, 8, 1}},  {"<u2", {1, 16, 1}}, {"<u4", {1, 32, 1}}, {"<u2", {4, 16, 1}},
                         {"|u1", {10, 8, 1}}, {"|u1", {12, 8, 1}}, {"<c8", {5, 64, 1}}, {"<c16", {5, 128, 1}}};

bool same(ht_dtype a, ht_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

// The text after `'key':` in the header's Python dictionary, up to `end`.
bool field(const std::string& header, const char* key, std::string* value) {
  const size_t at = header.find("'" + std::string(key) + "'");
  const size_t colon = at == std::string::npos ? at : header.find(':', at);
  if (colon == std::string::npos) return false;
  size_t start = header.find_first_not_of(" ", colon + 1);
  if (start == std::string::npos) return false;
  const size_t end = header[start] == '(' ? header.find(')', start) : header.find_first_of(",}", start);
  if (end == std::string::npos) return false;
  *value = header.substr(start, end - start);
  return true;
}

bool parse_shape(const std::string& text, std::vector<int64_t>* shape, uint64_t* numel) {
  *numel = 1;
  for (size_t at = 1; at < text.size();) {
    const size_t digit = text.find_first_of("0123456789", at);
    if (digit == std::string::npos) break;
    char* end = nullptr;
    errno = 0;
    const long long size = std::strtoll(text.c_str() + digit, &end, 10);
    if (errno != 0 || __builtin_mul_overflow(*numel, static_cast<uint64_t>(size), numel)) return false;
    shape->push_back(size);
    at = static_cast<size_t>(end - text.c_str());
  }
  return text.find_first_not_of("( 0123456789,") == std::string::npos && text.front() == '(';
}

bool read_header(std::ifstream* file, std::string* header) {
  char start[12] = {};
  if (!file->read(start, 10) || std::memcmp(start, "\x93NUMPY", 6) != 0 || (start[6] != 1 && start[6] != 2))
    return false;
  size_t length = static_cast<unsigned char>(start[8]) | size_t{static_cast<unsigned char>(start[9])} << 8;
  if (start[6] == 2) {
    if (!file->read(start + 10, 2)) return false;
    length |= size_t{static_cast<unsigned char>(start[10])} << 16 | size_t{static_cast<unsigned char>(start[11])} << 24;
  }
  if (length > (1u << 20)) return false;
  header->resize(length);
  return static_cast<bool>(file->read(header->data(), static_cast<std::streamsize>(length)));
}

bool fail(std::string* problem, const std::string& path, const std::string& why) {
  *problem = path + ": " + why;
  return false;
}

// Appends the elements of dimension `dim` and deeper, in C order.
void gather(const ht_tensor& t, const char* at, int32_t dim, std::string* out) {
  const size_t itemsize = t.dtype.bits / 8u;
  if (dim == t.ndim) {
    out->append(at, itemsize);
    return;
  }
  for (int64_t i = 0; i < t.shape[dim]; ++i)
    gather(t, at + i * t.strides[dim] * static_cast<int64_t>(itemsize), dim + 1, out);
}

}  // namespace

bool read_npy(const std::string& path, ht_dtype expected, Array* array, std::string* problem) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(problem, path, std::strerror(errno));
  std::string header, descr, order, shape;
  if (!read_header(&file, &header)) return fail(problem, path, "not an .npy file of version 1.0 or 2.0");
  if (!field(header, "descr", &descr) || !field(header, "fortran_order", &order) || !field(header, "shape", &shape)) {
    return fail(problem, path, "its header lacks descr, fortran_order or shape");
  }
  if (order != "False") return fail(problem, path, "in Fortran order; save numpy.ascontiguousarray(array)");
  const Row* row = nullptr;
  for (const Row& r : kRows) {
    const bool bits = r.dtype.code == 4 || r.dtype.code > 6;  // uint16 and uint8 are bits of what is expected
    if (descr == "'" + std::string(r.descr) + "'" && (!bits || same(expected, r.dtype))) row = &r;
  }
  if (row == nullptr) return fail(problem, path, "dtype " + descr + " is not one that Hardtack runs on");
  uint64_t numel = 0, nbytes = 0;
  if (!parse_shape(shape, &array->shape, &numel) ||
      __builtin_mul_overflow(numel, uint64_t{row->dtype.bits / 8u}, &nbytes)) {
    return fail(problem, path, "bad shape " + shape);
  }
  const std::streampos data = file.tellg();
  file.seekg(0, std::ios::end);
  const uint64_t left = static_cast<uint64_t>(file.tellg() - data);
  if (left != nbytes) {
    return fail(problem, path,
                "holds " + std::to_string(left) + " bytes of data, its shape says " + std::to_string(nbytes));
  }
  file.seekg(data);
  array->dtype = row->dtype;
  array->bytes.resize(nbytes);
  if (nbytes > 0 && !file.read(array->bytes.data(), static_cast<std::streamsize>(nbytes))) {
    return fail(problem, path, "cannot be read");
  }
  return true;
}

bool write_npy(const std::string& path, const ht_tensor& t, std::string* problem) {
  const Row* row = nullptr;
  for (const Row& r : kRows) {
    if (same(r.dtype, t.dtype)) row = &r;
  }
  if (row == nullptr) return fail(problem, path, "this dtype has no name in .npy");
  std::string shape;
  for (int32_t d = 0; d < t.ndim; ++d) shape += std::to_string(t.shape[d]) + ",";
  std::string header =
      "{'descr': '" + std::string(row->descr) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xFF);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  gather(t, static_cast<const char*>(t.data) + t.byte_offset, 0, &out);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(out.data(), static_cast<std::streamsize>(out.size()));
  file.close();
  return file.fail() ? fail(problem, path, std::strerror(errno)) : true;
}

}  // namespace hardtack::tools
