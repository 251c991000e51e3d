/* Kernels for the tests, as the code generator would write them. */
#include <hardtack/kernel.h>
#include <hardtack/kernel_abi.h>

/* out[i] = a[i] + b[i]; ints: numel */
static int32_t add_f32(const HtKernelArgs* args) {
  const float* a = args->buffers[0];
  const float* b = args->buffers[1];
  float* out = args->buffers[2];
  for (int64_t i = 0; i < args->ints[0]; ++i) out[i] = a[i] + b[i];
  return HT_KERNEL_OK;
}

/* a[i] *= ints[1]; ints: numel, factor */
static int32_t scale_f32(const HtKernelArgs* args) {
  float* a = args->buffers[0];
  for (int64_t i = 0; i < args->ints[0]; ++i) a[i] *= (float)args->ints[1];
  return HT_KERNEL_OK;
}

struct sum_rows {
  const HtKernelArgs* args;
};

static void sum_row(void* closure, int64_t row, int32_t worker) {
  const HtKernelArgs* args = ((struct sum_rows*)closure)->args;
  const int64_t width = args->ints[1];
  const float* a = (const float*)args->buffers[0] + row * width;
  float* scratch = (float*)((char*)args->worker_workspace + worker * args->worker_stride);
  scratch[0] = 0;
  for (int64_t i = 0; i < width; ++i) scratch[0] += a[i];
  ((float*)args->buffers[1])[row] = scratch[0];
}

/* out[r] = sum of row r, a row a task, each worker in its own workspace; ints: rows, width */
static int32_t sum_rows_f32(const HtKernelArgs* args) {
  struct sum_rows closure = {args};
  args->parallel->run(args->parallel->pool, args->ints[0], sum_row, &closure);
  return HT_KERNEL_OK;
}

/* out = a[0] < ints[0] */
static int32_t less_i64(const HtKernelArgs* args) {
  *(uint8_t*)args->buffers[1] = *(const int64_t*)args->buffers[0] < args->ints[0];
  return HT_KERNEL_OK;
}

/* a[0] += ints[0] */
static int32_t increase_i64(const HtKernelArgs* args) {
  *(int64_t*)args->buffers[0] += args->ints[0];
  return HT_KERNEL_OK;
}

/* out[i] = table[index[i]]; ints: numel, table size */
static int32_t gather_f32(const HtKernelArgs* args) {
  const float* table = args->buffers[0];
  const int64_t* index = args->buffers[1];
  float* out = args->buffers[2];
  for (int64_t i = 0; i < args->ints[0]; ++i) {
    if (index[i] < 0 || index[i] >= args->ints[1]) return HT_KERNEL_INDEX_OUT_OF_RANGE;
    out[i] = table[index[i]];
  }
  return HT_KERNEL_OK;
}

/* Returns what ints[0] says. */
static int32_t give_back(const HtKernelArgs* args) { return (int32_t)args->ints[0]; }

/* Calls the program's function with one argument, ints[0], and one result, out. */
static int32_t host_f32(const HtKernelArgs* args) {
  const int64_t one[1] = {1};
  ht_argument argument = {HT_ARGUMENT_INT, 0, {0}};
  ht_tensor result = {args->buffers[0], {1, 0}, 1, {2, 32, 1}, (int64_t*)args->ints, (int64_t*)one, 0};
  ht_kernel_call call = {0};
  argument.value.integer = args->ints[0];
  call.abi_version = HT_CALL_ABI_VERSION;
  call.num_arguments = call.num_results = 1;
  call.arguments = &argument;
  call.results = &result;
  call.parallel = args->parallel;
  call.user_data = args->host->user_data;
  call.message = args->message;
  call.message_nbytes = args->message_nbytes;
  return args->host->fn(&call) == 0 ? HT_KERNEL_OK : HT_KERNEL_FAILED;
}

static const HtKernelEntry entries[] = {
    {"add_f32", add_f32},     {"gather_f32", gather_f32},     {"give_back", give_back},
    {"host_f32", host_f32},   {"increase_i64", increase_i64}, {"less_i64", less_i64},
    {"scale_f32", scale_f32}, {"sum_rows_f32", sum_rows_f32},
};

__attribute__((visibility("default")))
const HtKernelTable hardtack_kernels = {HT_KERNEL_ABI_VERSION, sizeof entries / sizeof entries[0], entries};
