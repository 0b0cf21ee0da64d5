// Checks that network, data and checkpoint fit together before a training starts or continues.
#pragma once

#include <string>
#include <vector>

#include "net/model_file.h"
#include "shard/manifest.h"
#include "shard/multi_reader.h"
#include "train/state.h"

namespace ql::train {

// Returns the network with vocab_size, and cutoffs that are "auto", from the data. Throws Error if
// `network` (of the preset `where`) has another size or does not fit it.
net::Network with_vocabulary(const net::Network& network, const std::string& where,
                             shard::MultiReader& data);

// Throws Error that names both places if size or hash of the vocabularies differ. Imported ids may
// have no hash: then only the sizes are compared, with a warning.
void require_same_vocabulary(const std::string& where, const shard::VocabularyInfo& vocabulary,
                             const std::string& other_where, const shard::VocabularyInfo& other);

// Throws Error that lists every key of network and training, and the data, that differ between the
// checkpoint `where` and now, except for keys_that_may_change() and those of
// keys_that_may_change_by_name() that are in `named`.
void require_same_training(const std::string& where, const net::ModelFile& saved,
                           const TrainingState& saved_state, const net::ModelFile& now,
                           const DataIdentity& data, const DataIdentity& validation,
                           const std::vector<std::string>& named);

struct ChangedSetting {
  std::string key;
  Json before, after;
};
// Lists every key that the checkpoint and now both have and that differs.
std::vector<ChangedSetting> changed_settings(const net::ModelFile& saved,
                                             const net::ModelFile& now);

}  // namespace ql::train
