// Reads several packed folders as one: finds the folder of a position, parses ranges, and combines
// the folders' manifests.

#include "shard/multi_reader.h"

#include "base/log.h"
#include "base/process.h"
#include "shard/document_starts.h"
#include "shard/same_vocabulary.h"

namespace ql::shard {

// Sends `count` tokens of a folder, the first one at `position`, with the document starts among
// these tokens.
static void send(DocumentStartsReader& starts, std::int64_t position, const TokenId* ids,
                 std::size_t count, TokenSink& sink) {
  const std::int64_t end = position + static_cast<std::int64_t>(count);
  std::vector<std::size_t> among;
  for (; starts.next() < end; starts.pass()) {
    among.push_back(static_cast<std::size_t>(starts.next() - position));
  }
  send_tokens(ids, count, among, sink);
}

TokenRange parse_range(const std::string& text, std::int64_t total, const std::string& option,
                       const std::string& unit) {
  const std::vector<std::string> ends = split(text, ':');
  const auto counts_back = [](const std::string& end) { return !end.empty() && end[0] == '-'; };
  const auto place = [&](const std::string& end,
                         std::int64_t missing) -> std::optional<std::int64_t> {
    if (end.empty()) return missing;
    const std::optional<std::int64_t> number = parse_integer(end);
    // "-0" means the end.
    return number && counts_back(end) ? total + *number : number;
  };
  const bool two = ends.size() == 2;
  const std::optional<std::int64_t> begin = two ? place(ends[0], 0) : std::nullopt;
  const std::optional<std::int64_t> end = two ? place(ends[1], total) : std::nullopt;
  // This compares only two ends that count from the same side. Positions outside the data are
  // reported below.
  const bool backwards = begin && end && !ends[0].empty() && !ends[1].empty() &&
                         counts_back(ends[0]) == counts_back(ends[1]) && *end < *begin;
  if (backwards) {
    throw UsageError("--" + option, fmt::format("'{}' ends before it begins", text));
  }
  if (!begin || !end) {
    throw UsageError(
        "--" + option, fmt::format("'{}' is not a range", text),
        fmt::format("expected A:B for the {} from A to B - 1; a missing A is the beginning, a "
                    "missing B is the end, and negative values count from the end",
                    unit));
  }
  if (std::min(*begin, *end) < 0 || std::max(*begin, *end) > total) {
    throw Error("--" + option,
                fmt::format("{} reaches beyond the data (number of {}: {})", text, unit, total));
  }
  if (*end < *begin) {
    throw Error("--" + option,
                fmt::format("{} begins at {}, but ends at {} (number of {}: {})", text, *begin,
                            *end, unit, total),
                "give an end that does not precede the beginning");
  }
  return {*begin, *end};
}

MultiReader::MultiReader(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    readers_.emplace_back(folder);
    const TokenReader& reader = readers_.back();
    require_same_vocabulary({reader.name(), reader.vocabulary()},
                            {readers_.front().name(), readers_.front().vocabulary()},
                            "only data that record the same vocabulary can be joined: encode text "
                            "with one vocabulary, and pack ids with `qlbin pack --input ids "
                            "--vocab FILE`, which records it",
                            Facts::kMustBeRecorded);
    if (reader.tokens() > kMostTokens - tokens_) {
      throw Error(reader.name(),
                  fmt::format("the folders have more than {} tokens together", kMostTokens),
                  "join fewer folders");
    }
    begins_.push_back(tokens_);
    tokens_ += reader.tokens();
    documents_ += reader.documents();
  }
  if (folders.size() > 1 && readers_.front().vocabulary().hash.empty()) {
    warn_of_assumed_vocabulary(
        readers_.front().name(),
        folders.size() == 2 ? readers_.back().name() : fmt::format("{} more", folders.size() - 1));
  }
  begins_.push_back(tokens_);
  cursors_in_folder_.resize(readers_.size());
}

std::string MultiReader::name() const {
  const std::string& first = readers_.front().name();
  return readers_.size() == 1 ? first : fmt::format("{} and {} more", first, readers_.size() - 1);
}

std::string MultiReader::vocabulary_text() const {
  for (const TokenReader& reader : readers_) {
    if (std::string text = reader.vocabulary_text(); !text.empty()) return text;
  }
  return "";
}

std::string MultiReader::hash() const {
  if (readers_.size() == 1) return readers_.front().hash();
  ContentHasher hasher;
  for (const TokenReader& reader : readers_) {
    hasher.update(reader.hash().data(), reader.hash().size());
  }
  return hasher.digest();
}

const std::vector<std::int64_t>& MultiReader::document_starts() const {
  if (document_starts_) return *document_starts_;
  std::vector<std::int64_t> all;
  for (std::size_t folder = 0; folder < readers_.size(); ++folder) {
    const TokenReader& reader = readers_[folder];
    DocumentStartsReader starts(reader.place(), reader.manifest());
    if (folder == 0) {
      // DocumentStartsReader has checked that the file has the size that the manifest states. So at
      // most 8 bytes per byte of the file are reserved, even if the number of documents is wrong.
      all.reserve(static_cast<std::size_t>(
          std::min(documents_, reader.manifest().document_starts.bytes_compressed)));
    }
    for (; !starts.ended(); starts.pass()) all.push_back(begins_[folder] + starts.next());
  }
  document_starts_ = std::move(all);
  return *document_starts_;
}

std::int64_t MultiReader::frame_bytes() {
  const auto reader = std::find_if(readers_.begin(), readers_.end(),
                                   [](const TokenReader& each) { return each.tokens() > 0; });
  return reader == readers_.end() ? 0 : reader->frame_bytes();
}

void MultiReader::move_cursor(std::size_t cursor, std::size_t folder) {
  constexpr auto kNowhere = static_cast<std::size_t>(-1);
  if (cursor >= folder_of_cursor_.size()) folder_of_cursor_.resize(cursor + 1, kNowhere);
  std::size_t& before = folder_of_cursor_[cursor];
  if (before == folder) return;
  if (before != kNowhere && --cursors_in_folder_[before] == 0) readers_[before].close_files();
  before = folder;
  ++cursors_in_folder_[folder];
}

void MultiReader::read(std::int64_t begin, std::int64_t count, std::int64_t* out,
                       std::size_t cursor) {
  if (begin < 0 || count < 0 || begin > tokens_ - count) {
    throw std::out_of_range("tokens outside the data");
  }
  while (count > 0) {
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), begin);
    const auto folder = static_cast<std::size_t>(next - begins_.begin()) - 1;
    const std::int64_t part = std::min(count, *next - begin);
    move_cursor(cursor, folder);
    readers_[folder].read(begin - begins_[folder], part, out, cursor);
    begin += part;
    out += part;
    count -= part;
  }
}

std::optional<TextCounts> MultiReader::counts() const {
  TextCounts sum;
  for (const TokenReader& reader : readers_) {
    if (!reader.counts()) return std::nullopt;
    try {
      sum = sum + *reader.counts();
    } catch (const Error& error) {
      throw Error(reader.name(), error.what(),
                  "delete the keys \"counts\" and \"checksum\" from the manifest with wrong "
                  "counts: that of this or of an earlier folder");
    }
  }
  return sum;
}

StreamHeader MultiReader::header(const Json& configuration) const {
  StreamHeader header;
  header.vocabulary = readers_.front().vocabulary();
  Json inputs = Json::array();
  for (const TokenReader& reader : readers_) {
    // The vocabulary's file is read in every folder, also when an earlier folder had one, so that
    // every damaged file is reported.
    std::string text = reader.vocabulary_text();
    if (header.vocabulary_text.empty()) header.vocabulary_text = std::move(text);
    inputs.push_back(Json{{"data_hash", reader.hash()},
                          {"tokens", reader.tokens()},
                          {"provenance", reader.manifest().provenance}});
  }
  header.provenance = lineage(configuration, inputs);
  return header;
}

Json MultiReader::unknown_keys() const {
  // Holds each key and its value, in the order of first occurrence. The value is null where the
  // folders disagree.
  std::vector<std::pair<std::string, const Json*>> keys;
  std::unordered_map<std::string, std::size_t> places;  // index in `keys`
  for (const TokenReader& reader : readers_) {
    for (const auto& [key, value] : reader.manifest().unknown.items()) {
      const auto [place, is_new] = places.emplace(key, keys.size());
      if (is_new) {
        if (keys.size() == kMostUnknownKeys) {
          throw Error(reader.name(),
                      fmt::format("the manifests have more than {} different unknown keys",
                                  kMostUnknownKeys),
                      "delete some of them; delete \"checksum\" in each manifest that you change");
        }
        keys.emplace_back(key, &value);
        continue;
      }
      const Json*& kept = keys[place->second].second;
      if (kept == nullptr || *kept == value) continue;
      log_warning("the manifests have different values of the key '{}': the key is left out", key);
      kept = nullptr;
    }
  }
  Json agreed = Json::object();
  for (const auto& [key, value] : keys) {
    if (value != nullptr) agreed[key] = *value;
  }
  return agreed;
}

// Throws std::out_of_range unless 0 <= begin <= end <= all.
static void require_inside(TokenRange range, std::int64_t all) {
  if (range.begin < 0 || range.end < range.begin || range.end > all) {
    throw std::out_of_range(fmt::format("{}:{} of {}", range.begin, range.end, all));
  }
}

TokenRange MultiReader::tokens_of_documents(TokenRange documents) const {
  require_inside(documents, documents_);
  TokenRange tokens{tokens_, tokens_};
  std::int64_t document = 0;
  for (std::size_t i = 0; i < readers_.size() && document <= documents.end; ++i) {
    const TokenReader& reader = readers_[i];
    if (document + reader.documents() <= documents.begin) {
      document += reader.documents();
      continue;
    }
    for (DocumentStartsReader starts(reader.place(), reader.manifest());
         document <= documents.end && !starts.ended(); starts.pass(), ++document) {
      const std::int64_t start = begins_[i] + starts.next();
      if (document == documents.begin) tokens.begin = start;
      if (document == documents.end) tokens.end = start;
    }
  }
  return tokens;
}

void MultiReader::for_each_document(const std::function<void(std::int64_t tokens)>& use) const {
  for (const TokenReader& reader : readers_) {
    std::int64_t begin = 0;
    for (DocumentStartsReader starts(reader.place(), reader.manifest()); !starts.ended();
         starts.pass()) {
      if (starts.next() > 0) use(starts.next() - begin);
      begin = starts.next();
    }
    if (reader.tokens() > 0) use(reader.tokens() - begin);
  }
}

void MultiReader::copy(TokenRange range, int threads, TokenSink& sink, const TokensDone& done) {
  require_inside(range, tokens_);
  std::int64_t before = 0;  // tokens of the previous folders
  for (TokenReader& reader : readers_) {
    const std::int64_t begin = std::max(range.begin, before) - before;
    const std::int64_t end = std::min(range.end, before + reader.tokens()) - before;
    if (begin < end) {
      std::int64_t position = begin;
      DocumentStartsReader starts(reader.place(), reader.manifest(), begin);
      reader.read_in_order(begin, end, threads, [&](const TokenId* ids, std::size_t count) {
        check_for_stop();
        send(starts, position, ids, count, sink);
        position += static_cast<std::int64_t>(count);
        done(before + position - range.begin);
      });
    }
    before += reader.tokens();
    // Many open folders would exceed a process's limit of open files.
    reader.close_files();
  }
}

}  // namespace ql::shard
