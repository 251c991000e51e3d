// A whole bundle: container, manifest, weight headers, plans, hashes. Nothing native is loaded.
#include <hardtack/hardtack.h>

#include "bundle_mutator.h"
#include "custom_mutator.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t nbytes, size_t most_nbytes, unsigned seed) {
  return hardtack::fuzz::mutate_with(hardtack::fuzz::mutate_bundle, data, nbytes, most_nbytes, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t nbytes) {
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  options.verify_weights = 1;
  ht_model* model = nullptr;
  ht_status* status = ht_model_load_memory(data, nbytes, nullptr, nullptr, &options, &model);
  if (status == nullptr) ht_model_free(model);
  ht_status_free(status);
  return 0;
}
