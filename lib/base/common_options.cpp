#include "base/common_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/data_input.h"
#include "base/error.h"
#include "base/number.h"
#include "base/option_builders.h"
#include "base/provenance.h"
#include "base/resources.h"
#include "base/utf8.h"

namespace ql {

namespace {

// A million long names. Whoever takes a text for a list should not have to wait for all of it.
constexpr std::int64_t kLargestList = std::int64_t{256} << 20;

// Throws Error unless something is there; `where` is the place in the list.
void check_name(const std::string& name, const std::string& where) {
  struct stat status = {};
  if (::stat(name.c_str(), &status) == 0) return;
  const int reason = errno;
  constexpr std::size_t kMostShown = 200;
  const std::string shown = name.size() <= kMostShown ? name : name.substr(0, kMostShown) + "...";
  if (reason != ENOENT && reason != ENOTDIR && reason != ENAMETOOLONG) {
    throw SystemError(where, "open '" + shown + "'", reason);
  }
  throw Error(where, fmt::format("there is no '{}'", shown),
              "a list has one name a line, or NUL after each, and they are relative to the "
              "current folder");
}

}  // namespace

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

Option files_from_option() {
  return make_option("files-from", OptionType::kFile, "LIST",
                     "Take the names from this file instead of the command line; - is standard "
                     "input. A name stands on each line, or before each NUL when the list has one "
                     "(find -print0).");
}

std::vector<std::string> input_names(const Options& options) {
  if (!options.has("files-from")) return options.positional();
  if (!options.positional().empty()) {
    throw UsageError("--files-from", "the names come from the list, not from the command line",
                     fmt::format("put '{}' into the list", options.positional().front()));
  }
  const std::string path = options.text("files-from");
  const std::string list = path == "-" ? "standard input" : path;
  std::string text = read_content(path, Content::kNames, kLargestList);
  if (begins_with_mark(text)) text.erase(0, kByteOrderMark.size());
  const bool has_nul = text.find('\0') != std::string::npos;
  std::vector<std::string> names;
  std::int64_t number = 0;
  for (std::string& name : split(text, has_nul ? '\0' : '\n')) {
    ++number;
    if (!has_nul && !name.empty() && name.back() == '\r') name.pop_back();
    if (name.empty()) continue;
    const std::string where = fmt::format("{}: {} {}", list, has_nul ? "name" : "line", number);
    if (name != "-") {
      check_name(name, where);
    } else if (path == "-") {
      throw Error(where, "'-' stands for standard input, which is the list itself",
                  "keep the list in a file");
    }
    names.push_back(std::move(name));
  }
  if (names.empty()) {
    throw Error(list, "the list has no names", "look at the command that made it");
  }
  return names;
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
      // Nanoseconds of that many fit into 64 bits.
      make_integer("timeout",
                   "Seconds that one of several processes may let the others wait before they end. "
                   "torchrun, mpirun or srun starts processes that " +
                       sharing + ".",
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

Json configuration_of(const Options& options, const std::vector<std::string>& names) {
  Json json = configuration_of(options);
  if (options.has("files-from")) json["files"] = shortened_words(names);
  return json;
}

}  // namespace ql
