/** @file
 * Hardtack's runtime: load a bundle (.pkg), run it. This header is the whole stable interface; C99 and C++17.
 *
 * Conventions
 * 1. A function that can fail returns ht_status*: NULL means success, anything else must be given to ht_status_free.
 *    Results go to the last pointers and are written only on success. A pointer may be NULL only where its comment says
 *    so. Any function that allocates may give HT_OUT_OF_MEMORY; the comments name the other codes.
 * 2. Structs that the caller fills start with `size_t struct_size`, set to sizeof(the struct) (the *_default functions
 *    do it): a newer library reads older structs, and refuses a newer struct that asks for something it does not know.
 *    Structs that the library owns are returned as pointers to const; they may grow at the end.
 * 3. Strings are UTF-8 and end with NUL. Strings and structs that come from a model live as long as the model; those
 *    that come from neither a model nor a status live as long as the library.
 * 4. Any thread may call anything at any time, with one exception: a session is for one thread at a time. A second one
 *    that calls meanwhile gets HT_INVALID_ARGUMENT, and so does an observer that calls its own session; ht_session_free
 *    and ht_session_stream do not look, and ht_session_interrupt is for other threads. A model is immutable. Sessions keep
 *    their model and their pool alive: the three may be freed in any order.
 * 5. Nothing here throws, prints, starts a process or writes a file.
 * 6. Tensors are DLPack's DLTensor. Include <dlpack/dlpack.h> first and ht_tensor is that very type; otherwise it is a
 *    struct of the same layout.
 */
#ifndef HARDTACK_HARDTACK_H
#define HARDTACK_HARDTACK_H

#include <hardtack/kernel.h>
#include <hardtack/kernel_abi.h>
#include <hardtack/tensor.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** Marks what the library exports. */
#if defined(__GNUC__)
#define HT_API __attribute__((visibility("default")))
#else
#define HT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** @{ */
/** The version of this header, which is 0.1.0. */
#define HT_VERSION_MAJOR 0
#define HT_VERSION_MINOR 1
#define HT_VERSION_PATCH 0
/** @} */

/** "0.1.0": the version of the library that was loaded. */
HT_API const char* ht_version(void);

/* ---- Status ---- */

/** What kind of failure a status is. */
typedef enum ht_code {
  HT_OK = 0,               /**< success */
  HT_INVALID_ARGUMENT = 1, /**< the call is wrong: a null pointer, an unknown entry, state or option */
  HT_CONTRACT = 2,         /**< an input or output breaks the entry's contract; nothing was run */
  HT_BAD_BUNDLE = 3,       /**< the file is not a sound bundle */
  HT_NO_TARGET = 4,        /**< a sound bundle, but nothing in it runs on this machine, or in this program */
  HT_UNTRUSTED = 5,        /**< a trusted signature was asked for and the bundle has none */
  HT_IO = 6,               /**< a file could not be opened, read or mapped, or changed while it was read */
  HT_OUT_OF_MEMORY = 7,    /**< an allocation failed, or would pass the session's max_nbytes */
  HT_KERNEL = 8,           /**< a kernel refused its data: an index out of range, a failed assertion of the model */
  HT_CANCELLED = 9,        /**< the observer or ht_session_interrupt asked to stop */
  HT_INTERNAL = 10,        /**< a bug in Hardtack */
  HT_DEVICE = 11,          /**< the GPU or its driver failed; the message says when the whole process has lost it */
  HT_STATES = 12           /**< an earlier run failed while it wrote states: reset the session, or write those states */
} ht_code;

/** Why a call failed. The caller owns it, and frees it with ht_status_free, on any thread. */
typedef struct ht_status ht_status;

/** HT_OK for NULL. */
HT_API ht_code ht_status_code(const ht_status* status);
/** One sentence with the numbers; "" for NULL. Lives as long as the status. */
HT_API const char* ht_status_message(const ht_status* status);
/** Its message goes with it. NULL is fine. */
HT_API void ht_status_free(ht_status* status);
/** "HT_CONTRACT" and so on; "unknown code" for a number that is none of them. */
HT_API const char* ht_code_name(ht_code code);

/* ---- Tensors ---- */

/** "f32", "bf16", "bool", ... the names in plans; NULL for a type that Hardtack does not know. */
HT_API const char* ht_dtype_name(ht_dtype dtype);
/** Fills *dtype from such a name. HT_INVALID_ARGUMENT for another one. */
HT_API ht_status* ht_dtype_from_name(const char* name, ht_dtype* dtype);

/* ---- Ops of the program ---- */

/** The function that computes an op of bundles which were exported with hardtack.HostKernel(name). For the whole process
 * and for good, before a bundle that needs it is loaded; bundles name what they need. `abi_version` is
 * HT_CALL_ABI_VERSION of the header that the function was compiled with; `user_data`, which may be NULL, is handed to it in
 * each call (ht_kernel_call.user_data). It is called by any thread that runs a session, by several at once. The same again
 * is fine. HT_INVALID_ARGUMENT for a name that another function has, and for a version that this library does not call. */
HT_API ht_status* ht_register_op(const char* name, uint32_t abi_version, ht_kernel kernel, void* user_data);

/* ---- Model ---- */

/** A loaded bundle: immutable, safe to use from any number of threads. */
typedef struct ht_model ht_model;

/** How to load; zeros are the defaults. Read during the call; nothing in it is kept. */
typedef struct ht_load_options {
  size_t struct_size;
  const char* device; /**< NULL or "cpu", "cuda" (device 0) or "cuda:1" */
  const char* target; /**< NULL: the best that the device runs; else its name in the manifest, "cpu:x86-64-v3" */
  /** Nonzero: read and verify the manifest and the plans, load no native code. Works for targets that this machine
   * cannot run; sessions cannot be created. */
  int32_t inspect_only;
  /** Nonzero: refuse a bundle that is not signed by one of trusted_keys; implies verify_weights. */
  int32_t require_trusted_signature;
  const uint8_t (*trusted_keys)[32]; /**< ed25519 public keys; not looked at without require_trusted_signature */
  size_t num_trusted_keys;
  /** Nonzero: check the weights' hashes, too. Reads their file into memory, hashes that, and uses it; only a file that
   * the system keeps as it is (a sealed memfd, fs-verity) is mapped. */
  int32_t verify_weights;
  /** Nonzero: read the weights into memory. Otherwise they are mapped from the file: shared between processes, paged in
   * on first use. A mapped file may be replaced or removed (rename, unlink) but must not be overwritten or truncated in
   * place while a model uses it: reading a page that is gone kills the process (SIGBUS), as with every mapped file. */
  int32_t copy_weights;
  /** The weights file of a bundle that keeps them outside; NULL: under the name that the bundle knows, beside it. Its
   * size and its header are checked, its hash with verify_weights. inspect_only does without the file. */
  const char* weights_path;
  /** CUDA: the path of the driver library; NULL: libcuda.so.1, found as the system finds libraries. */
  const char* cuda_driver;
  /** A file of keys to trust, and of the lowest versions of models; read at each load. Implies
   * require_trusted_signature; trusted_keys, where that is set too, are trusted besides. See ht_check_trusted_keys. */
  const char* trusted_keys_path;
  const char* signed_model; /**< the model that a trusted signature must name; NULL: any, or none */
} ht_load_options;

/** Zeros, with struct_size set. */
static inline ht_load_options ht_load_options_default(void) {
  ht_load_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  return options;
}

/** Whether `path` is a file of trusted keys, as ht_load_options.trusted_keys_path takes it. A line is a public key, 64
 * hexadecimal digits, or the name of a model and the lowest version that is trusted; what follows a # is not read. With
 * a lowest version in the file, a signature that names no model is not trusted. HT_IO, and HT_INVALID_ARGUMENT with the
 * line. */
HT_API ht_status* ht_check_trusted_keys(const char* path);

/** Loads the bundle at `path`. `options` may be NULL. The caller owns the model, and gives it to ht_model_free.
 * HT_IO, HT_BAD_BUNDLE, HT_NO_TARGET, HT_UNTRUSTED, HT_DEVICE; HT_INVALID_ARGUMENT for options that make no sense. */
HT_API ht_status* ht_model_load(const char* path, const ht_load_options* options, ht_model** model);

/** Loads a bundle from memory. With `release` NULL the bytes are copied. Otherwise they are used in place, must be
 * aligned to 64 bytes and unchanged, until release(user) is called: when the last user of the model is gone, on the
 * thread that let go of it, or before this function returns an error. `user` may be NULL. Otherwise as ht_model_load.
 * */
HT_API ht_status* ht_model_load_memory(const void* data, size_t nbytes, void (*release)(void* user), void* user,
                                       const ht_load_options* options, ht_model** model);

/** Gives up the caller's hold, once; sessions keep the model alive. NULL is fine. */
HT_API void ht_model_free(ht_model* model);

/** What a model is, as a whole. */
typedef struct ht_model_info {
  const char* manifest; /**< the manifest's JSON text, as in the bundle */
  size_t manifest_nbytes;
  const char* target; /**< the chosen target's name */
  const char* device; /**< the target's: "cpu", "cuda"; where it is only inspected, also "hip" */
  uint64_t file_nbytes;
  uint64_t weights_nbytes; /**< bytes of all weights, in the bundle or outside */
  size_t num_entries, num_targets, num_states, num_constants, num_members, num_producers;
  int32_t has_signature;        /**< 1: the manifest carries one */
  int32_t trusted;              /**< 1: it was checked against trusted_keys and is good */
  const char* external_weights; /**< the name of the file that holds the weights; NULL: the bundle holds them */
  const char* signed_model;     /**< the model that the signature names; NULL: it names none, or there is none */
  int64_t signed_version;       /**< the version beside it */
  size_t num_user_kernels;      /**< ops with kernels of users: code that is trusted */
} ht_model_info;

/** Never NULL; lives as long as the model. */
HT_API const ht_model_info* ht_model_get_info(const ht_model* model);

/** An entry point. */
typedef struct ht_entry_info {
  const char* name;
  size_t num_inputs, num_outputs, num_syms, num_guards;
  const char* in_tree;  /**< JSON text; docs/package.md */
  const char* out_tree; /**< JSON text */
  size_t num_instructions, num_kernels;
  int64_t arena_lo, arena_hi; /**< bounds of the arena's nbytes over the declared sizes; INT64_MAX: no bound */
  const char* no_graph;       /**< why its runs cannot be replayed as a CUDA graph; "" where they can */
} ht_entry_info;

/** A size, or a stride in elements: lo == hi when fixed; hi is INT64_MAX without an upper bound. */
typedef struct ht_dim_info {
  int64_t lo, hi;
  const char* text; /**< "3", "s0", "2*s0" */
} ht_dim_info;

/** The contract of an input or output. */
typedef struct ht_tensor_info {
  const char* name;
  const char* dtype_name;
  ht_dtype dtype;
  int32_t ndim;
  const ht_dim_info* shape;   /**< ndim of them */
  const ht_dim_info* strides; /**< ndim of them */
  int32_t written;            /**< inputs: 1 where runs write to the caller's tensor; see ht_session_run */
} ht_tensor_info;

/** A size that each run may choose, or computes. */
typedef struct ht_sym_info {
  const char* name;
  int64_t lo, hi;     /**< hi: INT64_MAX without an upper bound */
  int32_t input, dim; /**< the dimension that sets it; dim -1: the value of that input; input -1: the run computes it */
} ht_sym_info;

/** A state or a constant. */
typedef struct ht_array_info {
  const char* name;
  const char* dtype_name;
  ht_dtype dtype;
  int32_t ndim;
  const int64_t* shape;
  uint64_t nbytes;
  const char* file;   /**< constants: the weights member */
  const char* tensor; /**< constants: its key in that member. States: the constant they start from, or NULL for zeros */
  const void* data;   /**< constants: the bytes, on the host. States: NULL */
} ht_array_info;

/** What a bundle was compiled for. */
typedef struct ht_target_info {
  const char* name;
  const char* device;
  const char* library; /**< NULL when it has none */
  int32_t runnable;    /**< 1: this machine has all it requires */
  const char* missing; /**< what this machine lacks, separated by commas; "" */
  size_t num_requires;
  const char* const* requirements;
} ht_target_info;

/** A file in the bundle. */
typedef struct ht_member_info {
  const char* name;
  uint64_t nbytes, offset;
  const char* sha256; /**< hex; "" for the manifest itself */
} ht_member_info;

/** @{ */
/** All of these return NULL when an index is out of range. */
HT_API const ht_entry_info* ht_model_entry(const ht_model* model, size_t entry);
HT_API const ht_tensor_info* ht_model_input(const ht_model* model, size_t entry, size_t input);
HT_API const ht_tensor_info* ht_model_output(const ht_model* model, size_t entry, size_t output);
HT_API const ht_sym_info* ht_model_sym(const ht_model* model, size_t entry, size_t sym);
HT_API const char* ht_model_guard(const ht_model* model, size_t entry, size_t guard);
HT_API const ht_array_info* ht_model_state(const ht_model* model, size_t state);
HT_API const ht_array_info* ht_model_constant(const ht_model* model, size_t constant);
HT_API const ht_target_info* ht_model_target(const ht_model* model, size_t target);
HT_API const ht_member_info* ht_model_member(const ht_model* model, size_t member);
/** @} */
/** What made the bundle: name ("torch") and *version, which may be NULL. NULL when the index is out of range. */
HT_API const char* ht_model_producer(const ht_model* model, size_t producer, const char** version);
/** An op with a kernel of a user's; *function computes it, *host is 1 where the program registers that (ht_register_op),
 * 0 where the bundle has it. Both may be NULL. NULL when the index is out of range. */
HT_API const char* ht_model_user_kernel(const ht_model* model, size_t kernel, const char** function, int32_t* host);
/** The index of the entry called `name`, or SIZE_MAX; also for NULL. */
HT_API size_t ht_model_find_entry(const ht_model* model, const char* name);

/** What ht_verify_file looked at. */
typedef struct ht_verify_report {
  size_t struct_size;
  size_t num_members, num_plans, num_instructions, num_libraries, num_constants;
  uint64_t weights_nbytes;
  int32_t has_signature, trusted;
} ht_verify_report;

/** Checks everything that can be checked without running anything: the container, the manifest, every hash and
 * checksum, the plans of every target, the form of every library; with require_trusted_signature the signature, too.
 * `options` may be NULL, and so may `report`, whose struct_size the caller sets. HT_BAD_BUNDLE says what is wrong with
 * the file; HT_IO, HT_UNTRUSTED; HT_INVALID_ARGUMENT for options or a struct_size that make no sense. */
HT_API ht_status* ht_verify_file(const char* path, const ht_load_options* options, ht_verify_report* report);

/** The CPU features of this machine, by the names of the compilers' flags, separated by spaces. */
HT_API const char* ht_cpu_features(void);

/** CPUs that this process may use at a time, at least 1: those of the calling thread's affinity, or fewer by the quota of
 * its control groups. */
HT_API int32_t ht_usable_cpus(void);

/* ---- Thread pools ---- */

/** Threads for kernels; safe to share. */
typedef struct ht_pool ht_pool;

/** A pool that several sessions may share, of 1 to 1024 threads. num_threads counts the caller's; 0: one for each core
 * that this process may use and that shortens a run, within its CPU quota (docs/cpp.md, "How many threads"). While one session's parallel region runs, others run theirs on their own thread. The caller owns the
 * pool, and gives it to ht_pool_free. HT_INVALID_ARGUMENT for another number, HT_OUT_OF_MEMORY when a thread cannot be
 * started. */
HT_API ht_status* ht_pool_create(int32_t num_threads, ht_pool** pool);
/** Gives up the caller's hold, once; sessions keep their pool alive. The last hold waits for the pool's threads to end.
 * NULL is fine. */
HT_API void ht_pool_free(ht_pool* pool);
/** The pool in the form of ht_session_options.parallel: for a program that decides for itself which parallel regions go
 * to the pool. From any thread; the pool's, and valid as long as the pool: a session that gets it does not keep it
 * alive. */
HT_API const HtParallel* ht_pool_parallel(const ht_pool* pool);

/* ---- Sessions ---- */

/** Runs a model, and holds its states and memory; for one thread at a time. */
typedef struct ht_session ht_session;

/** The caller's memory for arena, workspace, states and outputs; on CUDA: device memory, aligned to 256 bytes. Both
 * functions must be set, or neither. They are called on the thread that calls the session, within that call, and must
 * not throw; `user` must live as long as the session. */
typedef struct ht_allocator {
  void* user;                                                     /**< handed to both functions; may be NULL */
  void* (*allocate)(void* user, size_t nbytes, size_t alignment); /**< nbytes is never 0; NULL: no memory */
  void (*release)(void* user, void* memory, size_t nbytes);       /**< with the nbytes that were asked for */
} ht_allocator;

/** CUDA graphs: what a run enqueues is recorded when a shape runs for the second time with the same pointers, and then
 * replayed at once. Entries with control flow are never recorded (ht_entry_info.no_graph). */
typedef enum ht_graphs {
  HT_GRAPHS_AUTO = 0, /**< record and replay */
  HT_GRAPHS_OFF = 1   /**< enqueue every time */
} ht_graphs;

/** CUDA: where outputs of the session's own lie. HT_OUTPUTS_FOLLOW: on the host if all inputs are there, else on the
 * device. */
typedef enum ht_outputs {
  HT_OUTPUTS_FOLLOW = 0,   /**< see above */
  HT_OUTPUTS_ON_HOST = 1,  /**< copied to the host */
  HT_OUTPUTS_ON_DEVICE = 2 /**< left on the device */
} ht_outputs;

/** How to make a session; zeros are the defaults. Read during the call; what `stream`, `parallel->pool` and
 * `allocator.user` point to must live as long as the session. */
typedef struct ht_session_options {
  size_t struct_size;
  int32_t num_threads; /**< 0: as in ht_pool_create; ignored with `pool` or `parallel` */
  ht_pool* pool;       /**< share this pool, which the session keeps alive; ignored with `parallel` */
  /** The caller's threads, nworkers of them (1 to 1024): `run` calls each task exactly once, tells tasks that run at
   * the same time different workers, and returns when all are done (kernel_abi.h). Sessions that are given the same one
   * call it at the same time. The struct is copied. */
  const HtParallel* parallel;
  ht_allocator allocator;
  uint64_t max_nbytes;       /**< refuse to hold more than this, on the session's device; 0: no limit */
  int32_t max_cached_shapes; /**< how many shapes to keep ready; 0: 16 */
  /** CUDA: the stream (CUstream) on which everything happens; NULL: one of the session's own. (void*)1 is the legacy
   * default stream and (void*)2 the calling thread's, as in CUDA's own headers. It must live as long as the session. */
  void* stream;
  /** CUDA, nonzero: a run whose outputs stay on the device returns when its work is enqueued. What goes wrong later is
   * said by a later call on the session or by ht_session_synchronize. Host inputs must stay until then. */
  int32_t asynchronous;
  ht_graphs graphs;
  ht_outputs outputs;
} ht_session_options;

/** Zeros, with struct_size set. */
static inline ht_session_options ht_session_options_default(void) {
  ht_session_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  return options;
}

/** A session of `model`, which it keeps alive. `options` may be NULL. The caller owns it, and gives it to
 * ht_session_free. HT_INVALID_ARGUMENT for options that make no sense on the model's device, and for a model of
 * inspect_only; HT_DEVICE. */
HT_API ht_status* ht_session_create(ht_model* model, const ht_session_options* options, ht_session** session);
/** Frees it with its outputs and states; on CUDA waits for its runs first. No other thread may be in a call on it. NULL
 * is fine. */
HT_API void ht_session_free(ht_session* session);

/** Runs `entry` (NULL: the bundle's only entry). Inputs are only read, but for those that the
 * contract calls written (ht_tensor_info.written): of these, the caller's memory holds the new value behind a run that
 * succeeds. It must be writable and overlap no other input and no output. An output whose data is NULL, or what an earlier
 * run put there, gets the session's buffer, laid out as the contract says and valid until the next call on this
 * session: give such outputs as zeroed structs, and give them again as they are. Any other output must match the
 * contract like an input, be writable, and overlap neither an input nor another output; it is filled in place. An output
 * whose sizes the run computes (ht_session_bind says -1) is always the session's. On
 * success every field of an output in the session's buffer is set; shape and strides point to memory of the session.
 * After HT_CONTRACT and HT_INVALID_ARGUMENT (no such entry, a null pointer) nothing was run, nor after HT_OUT_OF_MEMORY
 * on the CPU; after HT_KERNEL, HT_CANCELLED and HT_DEVICE the caller's outputs and written inputs may be partly written. Where states may
 * be, too, later runs of entries that use them, and reads of them, give HT_STATES until ht_session_reset, or until
 * ht_session_write_state has written each. None of these ends the session; HT_DEVICE may have ended the device for the whole process, which the message says. The
 * first run of a shape allocates; later ones do not. On CUDA a tensor lies on the device, where it is used in place if
 * it is aligned to 16 bytes, or on the host, from and to where it is copied. What others enqueued to make an input must
 * be done, or be earlier on the session's stream. */
HT_API ht_status* ht_session_run(ht_session* session, const char* entry, const ht_tensor* inputs, size_t num_inputs,
                                 ht_tensor* outputs, size_t num_outputs);

/** Checks the inputs and prepares everything for them, runs nothing. Fills device, dtype, ndim, shape and strides of
 * `outputs`, so that the caller can allocate them (data stays untouched). Sizes and strides that the run computes are -1:
 * such an output's data is left NULL for the session. The device is where the session would put
 * them; shape and strides are the session's, valid until it is called with other sizes, trimmed or freed. Errors as
 * those of ht_session_run that come before anything runs: HT_CONTRACT, HT_INVALID_ARGUMENT, HT_OUT_OF_MEMORY,
 * HT_DEVICE. */
HT_API ht_status* ht_session_bind(ht_session* session, const char* entry, const ht_tensor* inputs, size_t num_inputs,
                                  ht_tensor* outputs, size_t num_outputs);

/** States return to their initial values. On the CPU this fails only while another thread is in the session; on CUDA
 * also with HT_DEVICE. */
HT_API ht_status* ht_session_reset(ht_session* session);
/** @{ */
/** Copies a state's bytes out or in: elements row by row, on the host; nbytes must be the state's. On CUDA it waits for
 * all runs so far. HT_CONTRACT for another nbytes, HT_INVALID_ARGUMENT for a name that is no state's, HT_DEVICE;
 * reading gives HT_STATES for a state that a run left half written, and what went wrong in runs so far. */
HT_API ht_status* ht_session_read_state(ht_session* session, const char* name, void* data, size_t nbytes);
HT_API ht_status* ht_session_write_state(ht_session* session, const char* name, const void* data, size_t nbytes);
/** @} */
/** From any thread: asks the run that is under way in the session, if there is one, to stop. It looks before each launch
 * and at the end of each turn of a loop, and returns HT_CANCELLED; a kernel that runs, and what is enqueued on a GPU, is
 * not stopped. Runs that begin later are not asked. No other thread may free the session meanwhile. NULL is fine. */
HT_API void ht_session_interrupt(ht_session* session);
/** CUDA: waits for all runs so far; says what went wrong in them: HT_KERNEL, HT_DEVICE. On the CPU there is nothing to
 * wait for. */
HT_API ht_status* ht_session_synchronize(ht_session* session);
/** CUDA: later runs go to this stream (see ht_session_options.stream), after all earlier ones. HT_DEVICE; on the CPU
 * HT_INVALID_ARGUMENT. */
HT_API ht_status* ht_session_set_stream(ht_session* session, void* stream);
/** CUDA: the stream that runs go to; NULL on the CPU. */
HT_API void* ht_session_stream(const ht_session* session);
/** Gives back everything but the states, outputs of earlier runs, too; the next run allocates again. Fails only with
 * HT_INVALID_ARGUMENT, while another thread is in the session. */
HT_API ht_status* ht_session_trim(ht_session* session);

/** What a session holds now. */
typedef struct ht_memory_info {
  size_t struct_size;
  uint64_t arena_nbytes, workspace_nbytes, outputs_nbytes, states_nbytes;
  size_t num_cached_shapes;
  uint64_t staging_nbytes; /**< CUDA: device copies of host tensors, and outputs on the host */
  size_t num_graphs;       /**< CUDA: recorded graphs that are kept */
} ht_memory_info;

/** Fills *info, whose struct_size the caller has set; HT_INVALID_ARGUMENT where it makes no sense. */
HT_API ht_status* ht_session_memory(const ht_session* session, ht_memory_info* info);

/** @{ */
/** Memory on the model's device, outside of sessions, aligned to 64 bytes at least; for callers without an allocator of
 * their own. The caller owns it, and gives it back while the model is there; NULL is fine then. Freeing device memory
 * waits for work that uses it. HT_OUT_OF_MEMORY, HT_DEVICE; HT_INVALID_ARGUMENT for a model of inspect_only. */
HT_API ht_status* ht_model_allocate(ht_model* model, size_t nbytes, void** memory);
HT_API void ht_model_deallocate(ht_model* model, void* memory);
/** @} */

/** One executed instruction, as the observer sees it, right after it ran. On CUDA the run waits after each instruction
 * and the tensors are copies on the host. */
typedef struct ht_step {
  const char* entry;
  size_t index;       /**< of the instruction in the plan, counting nested ones in order */
  const char* op;     /**< "launch", "copy", "fill", "if", "while" (the last two: their condition was read) */
  const char* kernel; /**< NULL when op is not "launch" */
  int64_t duration_ns;
  size_t num_values; /**< the values that the instruction wrote; for if and while the condition */
  const char* const* names;
  const ht_tensor* tensors;
  const char* file; /**< the user's source place; "" and 0 where unknown */
  int64_t line;
  const char* source_op;
  const char* module;
  const char* source;
} ht_step;

/** Returns 0 to go on; anything else stops the run with HT_CANCELLED. Called on the thread that runs; must not throw.
 * What `step` points to is valid during the call. */
typedef int32_t (*ht_observer)(void* user, const ht_step* step);

/** Calls `observer` with `user`, which may be NULL, after every instruction of later runs; a NULL observer takes it
 * away. A run without one has no overhead from this. HT_INVALID_ARGUMENT while another thread is in the session. */
HT_API ht_status* ht_session_set_observer(ht_session* session, ht_observer observer, void* user);

#ifdef __cplusplus
}
#endif

#endif /* HARDTACK_HARDTACK_H */
