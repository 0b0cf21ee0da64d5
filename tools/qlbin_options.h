// Reads the options that several commands of qlbin share.
#pragma once

#include <string>

#include "base/options.h"
#include "base/progress.h"
#include "shard/pack_writer.h"
#include "shard/token_sink.h"

// Returns the sizes and the level that are given, else the writer's own.
ql::shard::PackOptions pack_options(const ql::Options& options);

// Makes a vocabulary from --vocab-size and --eos. Throws UsageError when the eos is outside.
ql::shard::VocabularyInfo typed_vocabulary(const ql::Options& options);

ql::shard::TokensDone shown_by(ql::Progress& progress);
