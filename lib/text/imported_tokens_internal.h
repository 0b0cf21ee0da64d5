// Tokens as files of other programs write them: placed at their ids, and turned into the bytes that
// they stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace ql::text {

// Places tokens at ids that a file gives. An id without a token is a gap, which gets a placeholder.
class TokensById {
 public:
  // `expected` is the number of tokens of the file: it bounds the ids, so that a damaged one does
  // not take the memory for billions of tokens.
  TokensById(std::size_t expected, std::string where);

  // The same token may come again. Throws FormatError for an id out of bounds and for one that is
  // taken by another token.
  void add(std::uint64_t id, const std::string& token);
  // True when the id has a token.
  bool has(std::uint64_t id) const { return id < tokens_.size() && tokens_[id]; }
  // Takes the token away, so that its id becomes a gap.
  void remove(std::uint64_t id) { tokens_[id].reset(); }

  // Returns all tokens up to the highest id; gaps have no value.
  const std::vector<std::optional<std::string>>& tokens() const { return tokens_; }

 private:
  std::string where_;
  std::size_t end_;  // of the ids that are possible
  std::vector<std::optional<std::string>> tokens_;
};

// Returns the name of a gap, "<missing:7>", or a longer one where a token has this name.
std::string placeholder(std::uint64_t id, const std::unordered_set<std::string>& taken);

// The bytes of a token in the alphabet of GPT-2, which has one code point for each byte. Nothing
// when another code point stands in the token.
std::optional<std::string> byte_level_bytes(std::string_view token);

// The byte of a token such as <0x0A>, with digits in any case.
std::optional<char> byte_fallback(std::string_view token);

std::string replaced(std::string_view text, std::string_view pattern, std::string_view by);

// The ways in which programs write the bytes of a token in a list, as far as its tokens show it.
enum class Spelling {
  kPlain,          // as they are
  kByteLevel,      // in GPT-2's alphabet: all tokens are, and some begin with its blank
  kSentencePiece,  // U+2581 for a blank, and <0x41> for a byte: some token has U+2581
};
Spelling evident_spelling(const std::vector<std::string>& tokens);
std::string spelled_bytes(const std::string& token, Spelling spelling);

// Writes the bytes of tokens as a vocabulary of pieces has them, with as few escapes as a line
// needs. Tokens of the same bytes are distinguished by more of them.
class Speller {
 public:
  // `where` is the file in messages.
  explicit Speller(std::string where) : where_(std::move(where)) {}
  // Throws FormatError when the escapes of these bytes are used up: a single byte has two
  // spellings.
  std::string spell(const std::string& bytes);

 private:
  std::string where_;
  std::unordered_set<std::string> taken_;
};

}  // namespace ql::text
