// Decides whether token ids were made with the same vocabulary: the rule of all programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shard/manifest.h"

namespace ql::shard {

// Holds the facts that data, a model or a vocabulary's file record of a vocabulary. Messages name
// their owner `where`.
struct RecordedVocabulary {
  std::string where;
  VocabularyInfo facts;
};

// Returns `recorded`. If nothing is recorded, returns a vocabulary of which only the size is known.
VocabularyInfo recorded_or_size(const std::optional<VocabularyInfo>& recorded, std::int64_t size);

// kMayBeSilent assumes the same vocabulary, with a warning, where one of two sides records no hash.
// kMustBeRecorded is for data that are joined: what the result records of its vocabulary holds for
// all of its parts, so all parts must record the same.
enum class Facts { kMayBeSilent, kMustBeRecorded };

// Throws Error about a.where, with `remedy`, if the sizes differ, or if a hash or <eos> that both
// record differs. If the hash of one is not recorded, as in imported ids, decides by `facts`.
void require_same_vocabulary(const RecordedVocabulary& a, const RecordedVocabulary& b,
                             const std::string& remedy, Facts facts = Facts::kMayBeSilent);

// Warns that neither of two sides records its vocabulary.
void warn_of_assumed_vocabulary(const std::string& a, const std::string& b);

}  // namespace ql::shard
