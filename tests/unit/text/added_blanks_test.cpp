// Tests the removal of added spaces: every rule at the beginning of documents and lines.

#include "text/added_blanks.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ql::text {
namespace {

// Returns the text of one document. "<eos>" stands for that token, whose text is a line feed.
std::string text_of(AddedBlanks added, const std::vector<std::string>& tokens) {
  BlankRemover blanks(added);
  std::string text;
  for (const std::string& token : tokens) {
    if (token == "<eos>") {
      blanks.eos();
      text += '\n';
    } else {
      blanks.append(token, text);
    }
  }
  return text;
}

TEST_CASE("BlankRemover: each rule at the beginning of a document") {
  const std::vector<std::string> tokens = {"", " ", "  a b", " c"};
  CHECK(text_of({LeadingBlanks::kNone}, tokens) == "   a b c");
  CHECK(text_of({LeadingBlanks::kOne}, tokens) == "  a b c");
  // One space of each token, until a token has another character.
  CHECK(text_of({LeadingBlanks::kAll}, tokens) == " a b c");
  CHECK(text_of({LeadingBlanks::kFirstToken}, tokens) == "  a b c");
  CHECK(text_of({LeadingBlanks::kFirstToken}, {" a b", " c"}) == "ab c");
  // A first token without a space ends the beginning.
  CHECK(text_of({LeadingBlanks::kAll}, {"a", " b"}) == "a b");
}

TEST_CASE("BlankRemover: a line begins after <eos> or a line feed if the rules say so") {
  const std::vector<std::string> tokens = {" a", "<eos>", " b", " c\n", " d", "\n", " e"};
  CHECK(text_of({LeadingBlanks::kOne, false, false}, tokens) == "a\n b c\n d\n e");
  CHECK(text_of({LeadingBlanks::kOne, false, true}, tokens) == "a\nb c\n d\n e");
  CHECK(text_of({LeadingBlanks::kOne, true, false}, tokens) == "a\n b c\nd\ne");
  CHECK(text_of({LeadingBlanks::kOne, true, true}, tokens) == "a\nb c\nd\ne");
  CHECK(text_of({LeadingBlanks::kNone, true, true}, tokens) == " a\n b c\n d\n e");
  // The first token of a line may be a space and its end.
  CHECK(text_of({LeadingBlanks::kOne, true, true}, {" \n", " a"}) == "\na");
  CHECK(text_of({LeadingBlanks::kAll, true, true}, {" ", "\n", " ", " a"}) == "\na");
}

TEST_CASE("BlankRemover: a document begins anew") {
  BlankRemover blanks({LeadingBlanks::kOne});
  std::string text;
  blanks.append(" a", text);
  blanks.append(" b", text);
  blanks.begin_document();
  blanks.append(" c", text);
  CHECK(text == "a bc");
}

}  // namespace
}  // namespace ql::text
