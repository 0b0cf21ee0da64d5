#include "qlbin_options.h"

#include "base/common_options.h"
#include "base/error.h"

using namespace ql;
using namespace ql::shard;

PackOptions pack_options(const Options& options) {
  PackOptions pack;
  if (options.has("shard-tokens")) pack.shard_tokens = options.integer("shard-tokens");
  if (options.has("frame-tokens")) pack.frame_tokens = options.integer("frame-tokens");
  if (options.has("level")) pack.level = static_cast<int>(options.integer("level"));
  pack.force = options.flag("force");
  pack.threads = threads_of(options);
  return pack;
}

VocabularyInfo typed_vocabulary(const Options& options) {
  VocabularyInfo vocabulary;
  vocabulary.size = options.integer("vocab-size");
  if (!options.has("eos")) return vocabulary;
  if (options.integer("eos") >= vocabulary.size) {
    throw UsageError("", fmt::format("--eos {} is outside the vocabulary of {} entries",
                                     options.integer("eos"), vocabulary.size));
  }
  vocabulary.eos = static_cast<TokenId>(options.integer("eos"));
  return vocabulary;
}

TokensDone shown_by(Progress& progress) {
  return [&progress](std::int64_t tokens) { progress.update(tokens); };
}
