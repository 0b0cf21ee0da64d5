// Places the tokens of other programs at their ids, and turns them into the bytes that they stand
// for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/vocabulary.h"

namespace ql::text {

// Places tokens at the ids that a file gives. An id without a token is a gap and gets a
// placeholder.
class TokensById {
 public:
  // `expected` is the number of tokens in the file. It limits the ids, so that no memory for
  // billions of tokens is allocated when an id is damaged.
  TokensById(std::size_t expected, std::string where);

  // Accepts the same id and token again. Throws FormatError for an id out of bounds and for an id
  // that already has another token.
  void add(std::uint64_t id, const std::string& token);
  // Returns true when the id has a token.
  bool has(std::uint64_t id) const { return id < tokens_.size() && tokens_[id]; }
  // Returns all tokens up to the highest id; a gap has its placeholder.
  std::vector<std::string> names() const;

 private:
  std::string where_;
  std::size_t end_;  // all ids must be less than this
  std::vector<std::optional<std::string>> tokens_;
};

// Returns the placeholder of a gap, such as "<missing:7>". The name gets another pair of angle
// brackets each time that `taken` contains it.
std::string placeholder(std::uint64_t id, const std::unordered_set<std::string>& taken);
// Returns true when placeholder() may return this name for this id.
bool is_placeholder(std::string_view name, std::uint64_t id);

// Returns the bytes that a token spells in GPT-2's alphabet, which has one code point for each
// byte. Returns nothing when the token has a code point outside this alphabet.
std::optional<std::string> byte_level_bytes(std::string_view token);

// Returns the byte of a token such as <0x0A> or <0x0a>, or nothing for other tokens.
std::optional<unsigned char> byte_fallback(std::string_view token);

// Spelling names the ways in which programs write the bytes of tokens in a list. evident_spelling()
// recognizes the way by the tokens.
enum class Spelling {
  kPlain,  // the bytes themselves
  // GPT-2's alphabet (see byte_level_bytes()). It is recognized when all tokens except <...> and
  // [...] use this alphabet, and some token begins with U+0120, which stands for a space.
  kByteLevel,
  kSentencePiece,  // a space is U+2581, a byte is <0x41>; recognized when a token has U+2581
};
Spelling evident_spelling(const std::vector<std::string>& tokens);
std::string spelled_bytes(const std::string& token, Spelling spelling);

// Writes the bytes of tokens with the escapes of escaped() (base/strings.h), such as \t for a tab.
// If several tokens have the same bytes, the later ones get additional escapes, so that their
// spellings differ.
class Speller {
 public:
  // `where` is the file's name in messages.
  explicit Speller(std::string where) : where_(std::move(where)) {}
  // Returns the bytes with the first k of them as \xNN, for the smallest k that gives a new
  // spelling. Throws FormatError when every k, from 0 to the number of bytes, has been used.
  std::string spell(const std::string& bytes);

 private:
  std::string where_;
  std::unordered_set<std::string> taken_;
};

}  // namespace ql::text
