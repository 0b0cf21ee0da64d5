#include "shard/part_order.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/log.h"

namespace ql::shard {

namespace {

namespace fs = std::filesystem;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// The text of a name with a '#' for each of its numbers, and the numbers. They may have any number
// of digits, so each is its length, without zeros in front, and its digits.
struct NumberedName {
  std::string text;
  std::vector<std::pair<std::size_t, std::string>> numbers;
};

NumberedName numbered(const std::string& name) {
  NumberedName result;
  for (auto at = name.begin(); at != name.end();) {
    if (!is_digit(*at)) {
      result.text += *at++;
      continue;
    }
    const auto end = std::find_if_not(at, name.end(), is_digit);
    at = std::find_if(at, end, [](char digit) { return digit != '0'; });
    result.text += '#';
    result.numbers.emplace_back(static_cast<std::size_t>(end - at), std::string(at, end));
    at = end;
  }
  return result;
}

// The first pair of parts that a condition holds for, and the number of others.
class Pairs {
 public:
  void add(const std::string& first, const std::string& second) {
    if (count_++ == 0) first_ = {first, second};
  }
  bool any() const { return count_ > 0; }
  const std::string& first() const { return first_.first; }
  const std::string& second() const { return first_.second; }
  std::string others() const {
    return count_ == 1 ? "" : fmt::format(" (and {} more)", count_ - 1);
  }

 private:
  std::int64_t count_ = 0;
  std::pair<std::string, std::string> first_;
};

}  // namespace

std::string descending_names(const std::vector<std::string>& names) {
  // The last name of each text.
  std::map<std::string, std::pair<std::vector<std::pair<std::size_t, std::string>>, std::string>>
      last;
  for (const std::string& name : names) {
    NumberedName part = numbered((fs::path(name) / "").lexically_normal().string());
    const auto [at, fresh] = last.try_emplace(part.text, part.numbers, name);
    if (fresh) continue;
    if (part.numbers < at->second.first) return at->second.second + ", " + name;
    at->second = {std::move(part.numbers), name};
  }
  return "";
}

void note_part_order(const JoinedData& data) {
  std::vector<std::string> names;
  std::map<std::string, std::string> places, hashes;  // and the name that was met first
  Pairs same_place, same_data;
  for (const TokenReader& part : data.folders()) {
    names.push_back(part.name());
    std::error_code ignored;
    const std::string place = fs::canonical(part.place().folder, ignored).string();
    const auto [at, fresh_place] = places.try_emplace(place, part.name());
    if (!fresh_place) same_place.add(at->second, part.name());
    // Parts without tokens are all the same.
    if (part.tokens() == 0) continue;
    const auto [same, fresh_data] = hashes.try_emplace(part.hash(), part.name());
    if (fresh_place && !fresh_data) same_data.add(same->second, part.name());
  }
  if (const std::string found = descending_names(names); !found.empty()) {
    log_warning(
        "the numbers in the names descend: {}; parts are joined in the order that is given, and a "
        "shell sorts 10 before 2: `ls -dv` and `sort -V` sort by number",
        found);
  }
  if (same_place.any()) {
    const bool same_name = same_place.first() == same_place.second();
    log_warning("{} comes twice{}{}: its tokens are joined each time", same_place.first(),
                same_name ? "" : ", also as " + same_place.second(), same_place.others());
  }
  if (same_data.any()) {
    log_info("{} and {} hold the same tokens{}", same_data.first(), same_data.second(),
             same_data.others());
  }
}

}  // namespace ql::shard
