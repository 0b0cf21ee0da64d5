#include "qlbin_exchange.h"

#include "base/common_options.h"
#include "base/error.h"
#include "base/names.h"
#include "base/provenance.h"
#include "foreign/export_tokens.h"
#include "foreign/import_tokens.h"
#include "qlbin_options.h"
#include "shard/pack_target.h"

namespace {

using namespace ql;
using namespace ql::foreign;
using namespace ql::shard;

Format format_of(const Options& options) {
  return find_named<Format>(options.text("format")).value();
}

ImportRules import_rules(const Options& options) {
  ImportRules rules;
  rules.format = format_of(options);
  rules.vocabulary = typed_vocabulary(options);
  rules.eos_first = options.flag("eos-first");
  if (!rules.eos_first) return rules;
  if (rules.format == Format::kMegatron) {
    throw UsageError("", "--eos-first does not go with --format megatron",
                     "its index says where documents begin");
  }
  if (!rules.vocabulary.eos) {
    throw UsageError("", "--eos-first needs --eos", "give the id that begins documents");
  }
  return rules;
}

}  // namespace

void import_files(const Options& options) {
  const ImportRules rules = import_rules(options);
  check_pack_target(options.text("output"), options.flag("force"));
  const std::vector<std::string>& files = options.positional();
  // All headers and sizes, before the first token is packed.
  const std::int64_t tokens = count_tokens(files, rules.format);
  StreamHeader header;
  header.vocabulary = rules.vocabulary;
  header.provenance = provenance(configuration_of(options));
  PackWriter writer(options.text("output"), header, pack_options(options));
  Progress progress("import", "tokens", tokens);
  import_tokens(files, rules, writer, shown_by(progress));
  writer.finish(std::nullopt);
  progress.finish();
}

void export_folders(const Options& options) {
  ExportOptions rules;
  rules.format = format_of(options);
  rules.threads = threads_of(options);
  if (options.given("file-tokens") && rules.format != Format::kLlmc) {
    throw UsageError("", "--file-tokens goes with --format llmc only",
                     "the other formats are one file");
  }
  if (rules.format == Format::kLlmc) rules.file_tokens = options.integer("file-tokens");
  JoinedData data(options.positional());
  Progress progress("export", "tokens", data.tokens());
  export_tokens(data, options.text("output"), rules, shown_by(progress));
  progress.finish();
}
