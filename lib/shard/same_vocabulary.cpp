// Compares the facts that two owners of token ids record of their vocabularies.

#include "shard/same_vocabulary.h"

#include "base/log.h"

namespace ql::shard {

VocabularyInfo recorded_or_size(const std::optional<VocabularyInfo>& recorded, std::int64_t size) {
  VocabularyInfo only_size;
  only_size.size = size;
  return recorded.value_or(only_size);
}

void warn_of_assumed_vocabulary(const std::string& a, const std::string& b) {
  log_warning(
      "{} and {} do not record which vocabulary they were made with; it is assumed to be the same",
      a, b);
}

void require_same_vocabulary(const RecordedVocabulary& a, const RecordedVocabulary& b,
                             const std::string& remedy, Facts facts) {
  const bool a_silent = a.facts.hash.empty(), b_silent = b.facts.hash.empty();
  const bool known = !a_silent && !b_silent;
  const bool other_eos = a.facts.eos && b.facts.eos && *a.facts.eos != *b.facts.eos;
  if (a.facts.size != b.facts.size || other_eos || (known && a.facts.hash != b.facts.hash) ||
      (facts == Facts::kMustBeRecorded && a.facts != b.facts)) {
    throw Error(a.where,
                fmt::format("its vocabulary ({}) is not that of {} ({})", describe(a.facts),
                            b.where, describe(b.facts)),
                remedy);
  }
  if (known || facts == Facts::kMustBeRecorded) return;
  if (a_silent && b_silent) {
    warn_of_assumed_vocabulary(b.where, a.where);
  } else {
    log_warning(
        "{} does not record which vocabulary it was made with; the vocabulary of {} is assumed",
        a_silent ? a.where : b.where, a_silent ? b.where : a.where);
  }
}

}  // namespace ql::shard
