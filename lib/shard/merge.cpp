// Merges packed folders shard by shard, and compares the names of the folders.

#include "shard/merge.h"

#include <map>

#include "base/log.h"
#include "base/process.h"

namespace ql::shard {

namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Holds the numbers of a name. A number may have any length, so it is stored without leading zeros:
// as the count of its digits and the digits themselves.
using Numbers = std::vector<std::pair<std::size_t, std::string>>;

// Returns the name with a '#' in the place of each number, and the numbers.
std::pair<std::string, Numbers> numbered(const std::string& name) {
  std::string text;
  Numbers numbers;
  for (auto at = name.begin(); at != name.end();) {
    if (!is_digit(*at)) {
      text += *at++;
      continue;
    }
    const auto end = std::find_if_not(at, name.end(), is_digit);
    at = std::find_if(at, end, [](char digit) { return digit != '0'; });
    text += '#';
    numbers.emplace_back(static_cast<std::size_t>(end - at), std::string(at, end));
    at = end;
  }
  return {text, numbers};
}

// Holds the names of pairs of folders that share a property. A message names the first pair, and
// states the number of the other pairs.
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string others(const Pairs& pairs, const char* what) {
  return pairs.size() == 1 ? "" : fmt::format(" (further {}: {})", what, pairs.size() - 1);
}

}  // namespace

std::string descending_names(const std::vector<std::string>& names) {
  std::map<std::string, std::pair<Numbers, std::string>> last;  // by text: numbers and name
  for (const std::string& name : names) {
    auto [text, numbers] = numbered((fs::path(name) / "").lexically_normal().string());
    const auto [at, fresh] = last.try_emplace(text, numbers, name);
    if (fresh) continue;
    if (numbers < at->second.first) return at->second.second + ", " + name;
    at->second = {std::move(numbers), name};
  }
  return "";
}

void note_part_order(const MultiReader& data) {
  std::vector<std::string> names;
  // The keys are canonical paths and data hashes. The value is the name of the first folder that
  // has this path or this hash.
  std::map<std::string, std::string> places, hashes;
  Pairs same_place, same_data;
  for (const TokenReader& part : data.folders()) {
    names.push_back(part.name());
    std::error_code ignored;
    const std::string place = fs::canonical(part.place().folder, ignored).string();
    const auto [at, fresh_place] = places.try_emplace(place, part.name());
    if (!fresh_place) same_place.emplace_back(at->second, part.name());
    // All parts without tokens have the same data, which needs no note.
    if (part.tokens() == 0) continue;
    const auto [same, fresh_data] = hashes.try_emplace(part.hash(), part.name());
    if (fresh_place && !fresh_data) same_data.emplace_back(same->second, part.name());
  }
  if (const std::string found = descending_names(names); !found.empty()) {
    log_warning(
        "parts are joined in the order given, but the numbers in their names descend ({}); a shell "
        "sorts 10 before 2, while `ls -dv` and `sort -V` sort by number",
        found);
  }
  if (!same_place.empty()) {
    const auto& [first, second] = same_place.front();
    log_warning("{} is given again{}, and its tokens are joined each time{}", first,
                first == second ? "" : " as " + second, others(same_place, "repetitions"));
  }
  if (!same_data.empty()) {
    const auto& [first, second] = same_data.front();
    log_info("{} and {} hold the same tokens{}", first, second, others(same_data, "pairs"));
  }
}

namespace {

// Links or copies a shard into the new folder, and checks its hash.
class TakenShard {
 public:
  // `file` is the shard's new name.
  TakenShard(std::shared_ptr<ShardReader> reader, const std::string& file, const NewFolder& pack)
      : reader_(std::move(reader)),
        pack_(pack),
        file_(file),
        linked_(reader_->file().hard_link(pack.temporary() / file)) {}

  // Takes the next frame in its compressed form.
  void pass(std::string_view stored) {
    add(stored);
    if (++frames_ == reader_->frames()) end();
  }
  bool ended() const { return frames_ == reader_->frames(); }
  bool linked() const { return linked_; }
  const ShardReader& reader() const { return *reader_; }

 private:
  void add(std::string_view bytes) {
    hasher_.update(bytes.data(), bytes.size());
    if (linked_) return;
    // The copy is created only with its first bytes, because many shards may be in progress, and
    // each open copy would need an open file.
    if (!copy_) copy_ = pack_.create(file_);
    copy_->write(bytes.data(), bytes.size());
  }

  void end() {
    add(reader_->seek_table());
    reader_->check_hash(hasher_.digest());
    if (copy_) copy_->close();
  }

  std::shared_ptr<ShardReader> reader_;
  const NewFolder& pack_;
  std::string file_;
  bool linked_;
  std::unique_ptr<NewFile> copy_;
  std::size_t frames_ = 0;
  ContentHasher hasher_;
};

// Adds up the facts in the manifests.
Joined describe(const MultiReader& data) {
  Joined joined;
  joined.manifest.tokens = data.tokens();
  joined.manifest.documents = data.documents();
  joined.manifest.counts = data.counts();
  joined.manifest.unknown = data.unknown_keys();
  return joined;
}

class Merger {
 public:
  Merger(const MultiReader& data, const fs::path& folder, const StreamHeader& header,
         const PackOptions& options, const TokensDone& done)
      : data_(data),
        joined_(describe(data)),
        pack_(folder, header, options),
        done_(done),
        frames_(options.threads) {}

  Joined run() {
    for (const TokenReader& folder : data_.folders()) take_over(folder);
    pass_all();
    pack_.finish(joined_.manifest, [this](const StartsSink& sink) { send_starts(sink); });
    return std::move(joined_);
  }

 private:
  void take_over(const TokenReader& folder) {
    std::int64_t begin = 0;
    for (FileEntry entry : folder.manifest().shards) {
      const std::shared_ptr<ShardReader> reader = open(folder, entry, begin);
      begin += entry.tokens;
      entry.file = shard_file_name(joined_.manifest.shards.size());
      entry.seek_table_hash = content_hash(reader->seek_table());
      on_their_way_.emplace_back(reader, entry.file, pack_);
      joined_.manifest.shards.push_back(entry);
      for (std::size_t frame = 0; frame < reader->frames(); ++frame) {
        check_for_stop();
        frames_.add(reader, frame);
        while (frames_.full()) pass_first();
      }
      reader->close();
    }
  }

  std::shared_ptr<ShardReader> open(const TokenReader& folder, const FileEntry& entry,
                                    std::int64_t begin) {
    try {
      return std::make_shared<ShardReader>(folder.place(), entry, begin, folder.vocabulary());
    } catch (const Error&) {
      // Damage in earlier shards is reported first.
      pass_all();
      throw;
    }
  }

  void pass_first() {
    FramesAhead::Frame frame = frames_.take();
    TakenShard& shard = on_their_way_.front();
    pack_.hash(shard.reader().content(*frame.buffer));
    shard.pass(frame.buffer->stored);
    tokens_passed_ += static_cast<std::int64_t>(frame.ids().size());
    done_(tokens_passed_);
    frames_.give_back(std::move(frame));
    if (!shard.ended()) return;
    ++(shard.linked() ? joined_.linked : joined_.copied);
    on_their_way_.pop_front();
  }

  void pass_all() {
    while (!frames_.empty()) pass_first();
  }

  void send_starts(const StartsSink& sink) const {
    std::int64_t before = 0;  // tokens of the previous folders
    for (const TokenReader& folder : data_.folders()) {
      for_each_piece_of_starts(folder.place(), folder.manifest(), before, sink);
      before += folder.tokens();
    }
  }

  const MultiReader& data_;
  Joined joined_;  // made before pack_: describe() throws for data that cannot be joined
  NewPack pack_;
  const TokensDone& done_;
  std::deque<TakenShard> on_their_way_;  // in progress, oldest first
  FramesAhead frames_;
  std::int64_t tokens_passed_ = 0;
};

}  // namespace

Joined merge_folders(const MultiReader& data, const std::filesystem::path& folder,
                     const StreamHeader& header, const PackOptions& options,
                     const TokensDone& done) {
  return Merger(data, folder, header, options, done).run();
}

}  // namespace ql::shard
