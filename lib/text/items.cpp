// Checks the keys of items, and divides their tokens between context and choices.

#include "text/items.h"

#include <cmath>
#include <utility>

namespace ql::text {

namespace {

constexpr const char* kExpected =
    R"(expected {"context": "...", "choices": ["...", "..."], "answer": 0})";

// The same error in one place: `key` of the item is not as expected.
[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw FormatError(where, what, kExpected);
}

void check_text_or_ids(const Json& value, bool ids, const std::string& key,
                       const std::string& where) {
  if (!ids) {
    if (!value.is_string()) refuse(where, fmt::format("{} is not a text", key));
    return;
  }
  if (!value.is_array()) refuse(where, fmt::format("{} is not a list of ids, as others are", key));
  for (const Json& id : value) {
    if (!id.is_number_integer() || id < 0 || id > UINT32_MAX) {
      refuse(where, fmt::format("{}: {} is not a token's id", key, id.dump()));
    }
  }
}

// Returns the number of bytes of the blanks at the end.
std::size_t trailing_blanks(const std::string& text) {
  std::size_t count = 0;
  while (count < text.size() && is_blank(text[text.size() - 1 - count])) ++count;
  return count;
}

}  // namespace

Json parse_item(std::string_view line, const std::string& where) {
  const auto begin = std::find_if_not(line.begin(), line.end(), is_blank);
  if (begin == line.end()) refuse(where, "the line is empty");
  Json item;
  try {
    item = parse_json(line, where);
  } catch (const FormatError& error) {
    if (*begin != '{') refuse(where, "the line is not an object");
    // The line of the file stands in `where`.
    throw FormatError("", replaced(error.what(), where + ": line 1, column", where + ", column"));
  }
  if (!item.is_object()) refuse(where, "the line is not an object");
  for (const char* key : {"context", "choices"}) {
    if (!item.contains(key)) refuse(where, fmt::format("{} is missing", key));
  }
  const Json& choices = item["choices"];
  if (!choices.is_array() || choices.empty()) refuse(where, "choices is not a list of choices");
  const bool ids = item["context"].is_array();
  check_text_or_ids(item["context"], ids, "context", where);
  for (const Json& choice : choices) check_text_or_ids(choice, ids, "a choice", where);
  if (item.contains("answer") && !item["answer"].is_null()) {
    const Json& answer = item["answer"];
    if (!answer.is_number_integer() || answer < 0 || answer >= choices.size()) {
      refuse(where, fmt::format("answer: expected a whole number from 0 to {}, found {}",
                                choices.size() - 1, answer.dump()));
    }
  }
  // A whole number of more bits has been rounded, and rows would have another id than the file.
  if (const Json id = item.value("id", Json());
      id.is_number_float() && std::abs(id.get<double>()) >= 0x1p63) {
    throw FormatError(where, "id: the number has more than 64 bits", "write it as a text");
  }
  return item;
}

ItemEncoder::ItemEncoder(const Vocabulary* vocabulary, std::string missing)
    : vocabulary_(vocabulary), missing_(std::move(missing)) {
  if (vocabulary == nullptr || vocabulary->type() == TokenType::kPiece) return;
  EncodeOptions rules;
  rules.eos = usual_eos(*vocabulary);
  encoder_ = std::make_unique<const Encoder>(*vocabulary, rules);
}

std::vector<TokenId> ItemEncoder::ids_of(const std::string& text, const std::string& where) const {
  TextBlock block;
  block.text = text;
  block.place.file = where;
  return encoder_->encode(std::move(block)).ids;
}

Json ItemEncoder::encode_ids(const Json& item, const std::string& where) const {
  const auto check = [&](const Json& ids) {
    for (const Json& id : ids) {
      if (vocabulary_ == nullptr || id < vocabulary_->size()) continue;
      throw Error(where, fmt::format("the id {} is outside the vocabulary of {} entries", id.dump(),
                                     vocabulary_->size()));
    }
    return ids;
  };
  Json choices = Json::array();
  for (const Json& ids : item["choices"]) {
    Json unknown;
    if (vocabulary_ != nullptr) {
      unknown = std::count_if(ids.begin(), ids.end(), [&](const Json& id) {
        return vocabulary_->unk() && id == *vocabulary_->unk();
      });
    }
    choices.push_back(
        {{"ids", check(ids)}, {"unknown", unknown}, {"bytes", Json()}, {"characters", Json()}});
  }
  return {{"context", check(item["context"])}, {"choices", choices}};
}

Json ItemEncoder::encode(const Json& item, const std::string& where) const {
  if (item["context"].is_array()) return encode_ids(item, where);
  if (encoder_ == nullptr) {
    throw Error(where, vocabulary_ == nullptr ? missing_
                                              : "the rules that turn text into the pieces of this "
                                                "vocabulary are unknown; give lists of ids");
  }
  auto context = item["context"].get<std::string>();
  const bool words = vocabulary_->type() == TokenType::kWord;
  std::string moved;
  if (!words) {
    const std::size_t blanks = trailing_blanks(context);
    moved = context.substr(context.size() - blanks);
    context.resize(context.size() - blanks);
  }
  const std::vector<TokenId> before = ids_of(context, where);
  Json choices = Json::array();
  for (const Json& choice : item["choices"]) {
    const auto text = choice.get<std::string>();
    std::string whole;
    if (!words) whole.append(context).append(moved);
    std::vector<TokenId> ids = ids_of(whole.append(text), where);
    if (!words) ids.erase(ids.begin(), ids.begin() + std::min(before.size(), ids.size()));
    const auto unknown = [&](TokenId id) { return id == vocabulary_->unk(); };
    choices.push_back({{"ids", ids},
                       {"unknown", std::count_if(ids.begin(), ids.end(), unknown)},
                       {"bytes", text.size()},
                       {"characters", count_code_points(text)}});
  }
  return {{"context", before}, {"choices", choices}};
}

}  // namespace ql::text
