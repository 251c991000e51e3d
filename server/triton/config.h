// A model's configuration beside its bundle: completed where it says nothing, refused where the two disagree.
#ifndef HARDTACK_TRITON_CONFIG_H
#define HARDTACK_TRITON_CONFIG_H

#include "contract.h"
#include "settings.h"

namespace hardtack::triton {

/// What execution needs of a configuration that was checked.
struct Layout {
  std::int64_t max_batch_size = 0;  // 0: requests have no batch dimension of Triton's
  std::size_t num_sequences = 0;    // of one instance, at once; 0: there is no sequence batcher
  std::vector<bool> reshaped;       // by output: the configuration gives it a `reshape`
};

/// Fills what `config` leaves open; true if that changed it.
bool complete_config(const Contract& contract, const BackendSettings& backend, const ModelSettings& settings,
                     Json* config);

/// What other backends heed and Hardtack does not.
std::vector<std::string> ignored_features(const Json& config);

/// Says where configuration and bundle disagree, naming both.
Outcome check_config(const Contract& contract, const Json& config, Layout* layout);

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_CONFIG_H
