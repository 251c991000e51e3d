/* plain_c MODEL.pkg PHOTO.ppm: where in a photograph a face is likeliest, in C11 with hardtack.h alone.
 *
 * The model takes u8 pixels [height, width, 3] of any size and gives f32 [rows, columns]: the probability that the square of
 * 12 pixels that begins at (2 * column, 2 * row) shows a face. The photograph is shrunk by 2, 3, ... and each of these is
 * looked at, so that faces of other sizes are found; one session keeps all the sizes ready. */
#include <hardtack/hardtack.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct photo {
  int64_t width, height;
  uint8_t* pixels; /* rows of red, green, blue */
} photo;

typedef struct place {
  float probability;
  int64_t x, y, size;
} place;

/* Says why and frees the status: 0 when there was one to tell, 1 when all is well. */
static int good(ht_status* status) {
  if (status == NULL) return 1;
  fprintf(stderr, "plain_c: %s: %s\n", ht_code_name(ht_status_code(status)), ht_status_message(status));
  ht_status_free(status);
  return 0;
}

/* Reads a binary PPM file of 8 bits a channel; pixels is NULL when it is none. */
static photo read_photo(const char* path) {
  photo p = {0, 0, NULL};
  FILE* file = fopen(path, "rb");
  int width = 0, height = 0;
  if (file == NULL) return p;
  if (fscanf(file, "P6 %d %d 255", &width, &height) == 2 && fgetc(file) != EOF && width > 0 && height > 0 &&
      width <= 1 << 14 && height <= 1 << 14) {
    const size_t nbytes = (size_t)width * (size_t)height * 3;
    p.pixels = malloc(nbytes);
    if (p.pixels != NULL && fread(p.pixels, 1, nbytes, file) != nbytes) {
      free(p.pixels);
      p.pixels = NULL;
    }
  }
  fclose(file);
  p.width = width;
  p.height = height;
  return p;
}

/* Each pixel of the result is the mean of factor x factor pixels. */
static photo shrink(const photo* from, int64_t factor) {
  photo to = {from->width / factor, from->height / factor, NULL};
  to.pixels = malloc((size_t)(to.width * to.height * 3));
  if (to.pixels == NULL) return to;
  for (int64_t y = 0; y < to.height; ++y) {
    for (int64_t i = 0; i < to.width * 3; ++i) {
      int64_t sum = 0;
      for (int64_t k = 0; k < factor * factor; ++k) {
        const int64_t row = y * factor + k / factor, column = i / 3 * factor + k % factor;
        sum += from->pixels[(row * from->width + column) * 3 + i % 3];
      }
      to.pixels[y * to.width * 3 + i] = (uint8_t)((sum + factor * factor / 2) / (factor * factor));
    }
  }
  return to;
}

/* Runs the model on one size of the photograph and keeps the best place. */
static ht_status* look(ht_session* session, const photo* at, int64_t factor, place* best) {
  int64_t shape[] = {at->height, at->width, 3};
  ht_tensor input, output;
  memset(&input, 0, sizeof input);
  memset(&output, 0, sizeof output); /* no data: the session's own buffer, valid until its next call */
  input.data = at->pixels;
  input.device.device_type = 1;
  input.ndim = 3;
  input.dtype.code = 1;
  input.dtype.bits = 8;
  input.dtype.lanes = 1;
  input.shape = shape;
  ht_status* failed = ht_session_run(session, NULL, &input, 1, &output, 1);
  if (failed != NULL) return failed;
  const float* probabilities = (const float*)((const char*)output.data + output.byte_offset);
  for (int64_t i = 0; i < output.shape[0] * output.shape[1]; ++i) {
    if (probabilities[i] > best->probability) {
      best->probability = probabilities[i];
      best->x = i % output.shape[1] * 2 * factor;
      best->y = i / output.shape[1] * 2 * factor;
      best->size = 12 * factor;
    }
  }
  return NULL;
}

static int search(ht_session* session, const photo* whole, int64_t least) {
  place best = {0, 0, 0, 0};
  for (int64_t factor = 2; whole->width / factor >= least && whole->height / factor >= least; ++factor) {
    photo small = shrink(whole, factor);
    if (small.pixels == NULL) {
      fprintf(stderr, "plain_c: no memory for a photograph shrunk by %lld\n", (long long)factor);
      return 1;
    }
    const int ran = good(look(session, &small, factor, &best));
    free(small.pixels);
    if (!ran) return 1;
  }
  printf("x %lld y %lld size %lld probability %.6f\n", (long long)best.x, (long long)best.y, (long long)best.size,
         (double)best.probability);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: plain_c MODEL.pkg PHOTO.ppm\n");
    return 2;
  }
  photo whole = read_photo(argv[2]);
  if (whole.pixels == NULL) {
    fprintf(stderr, "plain_c: %s is not a binary PPM file of 8 bits a channel\n", argv[2]);
    return 1;
  }
  ht_model* model = NULL;
  ht_session* session = NULL;
  int result = 1;
  if (good(ht_model_load(argv[1], NULL, &model)) && good(ht_session_create(model, NULL, &session))) {
    const ht_tensor_info* pixels = ht_model_input(model, 0, 0);
    if (pixels != NULL && pixels->ndim == 3) {
      result = search(session, &whole, pixels->shape[0].lo);
    } else {
      fprintf(stderr, "plain_c: %s does not take pixels [height, width, 3]\n", argv[1]);
    }
  }
  ht_session_free(session);
  ht_model_free(model);
  free(whole.pixels);
  return result;
}
