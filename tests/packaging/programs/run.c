/* run_c MODEL.pkg: what run.cpp does, in C with hardtack.h alone. */
#include <hardtack/hardtack.h>
#include <stdio.h>

static int good(ht_status* status) {
  if (status == NULL) return 1;
  fprintf(stderr, "%s: %s\n", ht_code_name(ht_status_code(status)), ht_status_message(status));
  ht_status_free(status);
  return 0;
}

int main(int argc, char** argv) {
  float x[] = {1, 2, 3};
  int64_t shape[] = {3};
  ht_model* model = NULL;
  ht_session* session = NULL;
  ht_tensor in, out;
  const float* y = NULL;
  memset(&in, 0, sizeof in);
  memset(&out, 0, sizeof out);
  in.data = x;
  in.device.device_type = 1;
  in.ndim = 1;
  in.shape = shape;
  if (good(ht_dtype_from_name("f32", &in.dtype)) && good(ht_model_load(argc > 1 ? argv[1] : "", NULL, &model)) &&
      good(ht_session_create(model, NULL, &session)) && good(ht_session_run(session, "copy", &in, 1, &out, 1))) {
    y = (const float*)out.data;
    printf("%s: %g %g %g\n", ht_version(), (double)y[0], (double)y[1], (double)y[2]);
  }
  ht_session_free(session);
  ht_model_free(model);
  return y == NULL;
}
