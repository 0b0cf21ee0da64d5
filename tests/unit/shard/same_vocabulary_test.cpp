// Tests the rule for the same vocabulary with every pair of facts that can differ or be missing.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "shard/same_vocabulary.h"
#include "unit/complaint.h"

namespace ql::shard {
namespace {

VocabularyInfo facts(std::int64_t size, const std::string& hash = "", int eos = -1) {
  VocabularyInfo made;
  made.size = size;
  made.hash = hash;
  if (eos >= 0) made.eos = static_cast<TokenId>(eos);
  return made;
}

// Returns the message of an error, or the warning, or "" if both are the same.
std::string answer(const VocabularyInfo& a, const VocabularyInfo& b, Facts rule) {
  std::string said;
  set_log_sink([&](LogLevel, const std::string& line) { said += line; });
  const std::string refusal = test::complaint([&] {
    require_same_vocabulary({"a", a}, {"b", b}, "remedy", rule);
  });
  set_log_sink(nullptr);
  return refusal.empty() ? said : refusal;
}

}  // namespace

TEST_CASE("require_same_vocabulary: sizes, hashes and <eos> that differ, or are not recorded") {
  const char* const refused = "a: its vocabulary (";
  const char* const b_is_assumed = "a does not record which vocabulary it was made with; the ";
  const char* const a_is_assumed = "b does not record which vocabulary it was made with; the ";
  const struct {
    VocabularyInfo a, b;
    const char *for_models, *for_joins;  // the beginning of the answer
  } rows[] = {
      {facts(9, "x"), facts(9, "x"), "", ""},
      {facts(9, "x"), facts(9, "y"), refused, refused},
      {facts(9, "x", 0), facts(9, "x", 0), "", ""},
      {facts(9), facts(8), refused, refused},
      {facts(9, "x"), facts(8), refused, refused},
      {facts(9), facts(8, "x"), refused, refused},
      {facts(9), facts(9), "b and a do not record", ""},
      {facts(9), facts(9, "x"), b_is_assumed, refused},
      {facts(9, "x"), facts(9), a_is_assumed, refused},
      {facts(9, "", 2), facts(9, "x", 2), b_is_assumed, refused},
      {facts(9, "", 2), facts(9, "x", 3), refused, refused},
      {facts(9, "", 2), facts(9, "x"), b_is_assumed, refused},
      {facts(9, "", 2), facts(9, "", 3), refused, refused},
      {facts(9, "", 2), facts(9), "b and a do not record", refused},
  };
  for (const auto& row : rows) {
    CAPTURE(describe(row.a));
    CAPTURE(describe(row.b));
    for (const auto& [rule, begin] : {std::pair(Facts::kMayBeSilent, row.for_models),
                                      std::pair(Facts::kMustBeRecorded, row.for_joins)}) {
      const std::string said = answer(row.a, row.b, rule);
      CHECK(said.substr(0, std::string(begin).size()) == begin);
      CHECK(said.empty() == std::string(begin).empty());
    }
  }
  CHECK(answer(facts(9), facts(8, "x", 3), Facts::kMayBeSilent) ==
        "a: its vocabulary (9 entries) is not that of b (8 entries, eos 3, hash x); remedy");
}

TEST_CASE("recorded_or_size: without a recorded vocabulary the size is known") {
  CHECK(recorded_or_size(facts(9, "x"), 5) == facts(9, "x"));
  CHECK(recorded_or_size(std::nullopt, 5) == facts(5));
}

}  // namespace ql::shard
