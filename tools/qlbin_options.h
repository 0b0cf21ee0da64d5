// Reads the options that several commands of qlbin have.
#pragma once

#include "base/options.h"
#include "base/progress.h"
#include "shard/pack_writer.h"
#include "shard/token_sink.h"

// Sizes and level where they are given, else the writer's own.
ql::shard::PackOptions pack_options(const ql::Options& options);

// Reads --vocab-size and --eos. Throws UsageError when the eos is outside.
ql::shard::VocabularyInfo typed_vocabulary(const ql::Options& options);

ql::shard::TokensDone shown_by(ql::Progress& progress);
