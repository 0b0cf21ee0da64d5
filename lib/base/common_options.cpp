#include "base/common_options.h"

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/option_builders.h"
#include "base/resources.h"

namespace ql {

Option threads_option(const std::string& remark) {
  return make_integer(
      "threads", "Threads; 0 is one for each physical core that this process may use. " + remark,
      "0", 0, 1024);
}

int threads_of(const Options& options) {
  const auto threads = static_cast<int>(options.integer("threads"));
  return threads > 0 ? threads : usable_cores();
}

Option output_file_option() {
  return with_letter(
      'o', make_option("output-file", OptionType::kFile, "FILE",
                       "The file to write; - is standard output. It appears under its name when it "
                       "is complete, and a file of that name stays until then.",
                       "-"));
}

Option columns_option() {
  return make_option(
      "columns", OptionType::kText, "NAME,...|all",
      "The columns of the table, in this order. On a terminal the table is aligned, and "
      "has as many as fit 100 characters when this is left out; elsewhere it has all, "
      "with tabs between them.");
}

Option raw_option() {
  return make_flag(
      "raw",
      "Read every FILE as it is. Without it gzip and zstd are unpacked, and files that "
      "begin as archives, documents, pictures, pages of the web or text in UTF-16 are "
      "refused.");
}

Content content_of(const Options& options, Content expected) {
  return options.flag("raw") ? Content::kAnything : expected;
}

TableText table_of(const Options& options, std::vector<std::string> first) {
  const std::string columns = options.has("columns") ? options.text("columns") : "";
  if (!columns.empty() && options.text("format") != "tsv") {
    throw UsageError("--columns", "is for tables", "give --format tsv with it, or leave it out");
  }
  return {columns, ::isatty(STDOUT_FILENO) == 1, std::move(first)};
}

std::vector<Option> machine_options(const std::string& sharing, const Option& precision) {
  return {
      threads_option(
          "With several processes N is for each, and 0 divides the cores of a machine among them."),
      make_integer("processes",
                   "Processes on this machine that " + sharing +
                       ". torchrun, mpirun and srun start them instead, also on several machines.",
                   "1", 1, 1024),
      // Nanoseconds of that many fit into 64 bits.
      make_integer("timeout",
                   "Seconds that one of several processes may let the others wait before they end.",
                   "600", 1, INT32_MAX),
      make_option("device", OptionType::kText, "DEVICE",
                  "Where to compute: cpu, cuda (the first GPU; for several processes one each) or "
                  "cuda:N.",
                  "cpu"),
      precision};
}

Json configuration_of(const Options& options) {
  Json json = options.resolved();
  json.erase("threads");
  json.erase("output-file");
  return json;
}

}  // namespace ql
