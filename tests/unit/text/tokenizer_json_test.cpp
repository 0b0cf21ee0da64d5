// Checks that the tokens of a tokenizer.json decode as its own program decodes them.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/strings.h"
#include "text/decoder.h"
#include "text/token_counter.h"
#include "text/vocabulary_import.h"
#include "unit/shard_support.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;
using testing::decoded;
using Parts = std::vector<std::string>;

// The decoders of the Hugging Face library by their definition: each makes a list of texts from a
// list of texts, and the last list is joined.
std::string bytes_in_alphabet(const std::string& text) {
  static const std::map<char32_t, char> letters = [] {
    std::map<char32_t, char> made;
    char32_t other = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool shown =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      made[shown ? static_cast<char32_t>(byte) : other++] = static_cast<char>(byte);
    }
    return made;
  }();
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += code_point_at(text, i).length) {
    const auto letter = letters.find(code_point_at(text, i).value);
    if (letter == letters.end()) return text;
    bytes += letter->second;
  }
  return bytes;
}

std::string joined(const Parts& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

std::string substituted(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

Parts with_bytes(const Parts& parts) {
  Parts made;
  std::string run;
  const auto end_run = [&] {
    if (!run.empty() && find_invalid_utf8(run) == std::string::npos) made.push_back(run);
    if (!run.empty() && find_invalid_utf8(run) != std::string::npos) {
      for (std::size_t i = 0; i < run.size(); ++i) made.emplace_back("\uFFFD");
    }
    run.clear();
  };
  for (const std::string& part : parts) {
    if (part.size() == 6 && part.rfind("<0x", 0) == 0 && part[5] == '>') {
      run += static_cast<char>(std::stoi(part.substr(3, 2), nullptr, 16));
    } else {
      end_run();
      made.push_back(part);
    }
  }
  end_run();
  return made;
}

std::string stripped(std::string text, const Json& strip) {
  const std::string content = strip["content"];
  for (int i = 0; i < strip["start"].get<int>() && text.rfind(content, 0) == 0; ++i) {
    text.erase(0, content.size());
  }
  for (int i = 0; i < strip["stop"].get<int>() && text.size() >= content.size() &&
                  text.compare(text.size() - content.size(), content.size(), content) == 0;
       ++i) {
    text.erase(text.size() - content.size());
  }
  return text;
}

Parts reference(const Json& decoder, Parts parts) {
  const std::string type = decoder["type"];
  if (type == "Sequence") {
    for (const Json& each : decoder["decoders"]) parts = reference(each, parts);
  } else if (type == "Fuse") {
    parts = {joined(parts)};
  } else if (type == "ByteFallback") {
    parts = with_bytes(parts);
  } else if (type == "ByteLevel") {
    for (std::string& part : parts) part = bytes_in_alphabet(part);
    parts = {replace_invalid_utf8(joined(parts))};
  } else if (type == "Replace") {
    for (std::string& part : parts) {
      part = substituted(part, decoder["pattern"]["String"], decoder["content"]);
    }
  } else if (type == "Strip") {
    for (std::string& part : parts) part = stripped(part, decoder);
  } else if (type == "Metaspace") {
    const bool prefix = decoder.value("prepend_scheme", "always") != "never" &&
                        decoder.value("add_prefix_space", true);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i] = substituted(parts[i], decoder["replacement"], i == 0 && prefix ? "" : " ");
    }
  } else {
    FAIL("no such decoder");
  }
  return parts;
}

VocabularyImport without_specials() {
  VocabularyImport rules;
  rules.eos = rules.unk = Presence::kNever;
  return rules;
}

constexpr const char* kLlama = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

// Returns a tokenizer.json with tokens at every second id, and added ones after another gap.
Json gapped_tokenizer(const std::string& decoder) {
  Json json =
      parse_json(R"({"version": "1.0", "added_tokens": [], "model": {"type": "BPE"}})", "t");
  json["decoder"] = parse_json(decoder, "d");
  json["model"]["vocab"] = Json::object();
  int id = 0;
  for (const char* token :
       {"\u2581", "\u2581\u2581", "\u2581the", "\u2581New\u2581York", "x", "xx", "_a", "\u0120b",
        "\u00C3", "\u00A9", "\u65E5", "<0xC3>", "<0xA9>", "<0x0A>", "<0x41>", "\u010A", "aba"}) {
    json["model"]["vocab"][token] = id;
    id += 2;
  }
  for (const char* token :
       {"<s>", "<|end_of_text|>", "\u65E5\u672C", "\u2581\u2581\u2581", "\u0120\u0120"}) {
    json["added_tokens"].push_back({{"id", 40 + id++}, {"content", token}, {"special", true}});
  }
  return json;
}

TEST_CASE("read_tokenizer_json: tokens of a tokenizer.json decode as its decoders say") {
  const std::string mark =
      R"({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "})";
  const std::string other = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "oo"})";
  const std::string strip = R"({"type": "Strip", "content": "x", "start": 1, "stop": 0})";
  const std::string fallback = R"({"type": "ByteFallback"})", fuse = R"({"type": "Fuse"})";
  const std::string level = R"({"type": "ByteLevel"})";
  const auto meta = [](const std::string& more) {
    return R"({"type": "Metaspace", "replacement": "\u2581")" + more + "}";
  };
  const auto sequence = [](const std::vector<std::string>& parts) {
    std::string all;
    for (const std::string& part : parts) all += (all.empty() ? "" : ",") + part;
    return R"({"type": "Sequence", "decoders": [)" + all + "]}";
  };
  const std::vector<std::string> decoders = {
      kLlama,
      level,
      fuse,
      mark,
      fallback,
      sequence({}),
      sequence({mark, fallback, fuse}),
      sequence({mark, fallback}),
      sequence({mark, other, sequence({fallback, fuse})}),
      sequence({mark, level, R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})"}),
      sequence({other, level, fuse}),
      sequence({R"({"type": "Strip", "content": "a", "start": 2, "stop": 1})", mark}),
      meta(""),
      meta(R"(, "add_prefix_space": true, "prepend_scheme": "first")"),
      meta(R"(, "add_prefix_space": false)"),
      meta(R"(, "prepend_scheme": "never")"),
      sequence({meta(R"(, "prepend_scheme": "always")"), fallback, fuse}),
      sequence({meta(R"(, "prepend_scheme": "never")"), fallback, fuse,
                R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})"}),
      sequence({R"({"type": "Strip", "content": "_", "start": 1, "stop": 0})",
                meta(R"(, "prepend_scheme": "never")")}),
  };
  testing::Random random(33);
  for (const std::string& decoder : decoders) {
    INFO(decoder);
    const Json json = gapped_tokenizer(decoder);
    std::map<TokenId, std::string> tokens;
    for (const auto& [token, id] : json["model"]["vocab"].items()) tokens[id] = token;
    for (const Json& added : json["added_tokens"]) tokens[added["id"]] = added["content"];
    const Vocabulary vocabulary = import_vocabulary(json.dump(), without_specials(), "t");
    CHECK(vocabulary.size() == tokens.rbegin()->first + 1);
    CHECK(vocabulary.token(1) == "<missing:1>");
    const Vocabulary read = parse_vocabulary(vocabulary.to_text(Json::object()), "v");
    CHECK(read.hash() == vocabulary.hash());
    std::vector<TokenId> known;
    for (const auto& token : tokens) known.push_back(token.first);
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids;
      Parts parts;
      for (std::size_t i = testing::below(random, 7); i > 0; --i) {
        ids.push_back(known[testing::below(random, known.size())]);
        // Bytes that are not UTF-8 stay bytes, while the program writes U+FFFD.
        if (tokens[ids.back()] == "<0xA9>") ids.back() = 22;
        parts.push_back(tokens[ids.back()]);
        if (tokens[ids.back()] == "<0xC3>") {
          ids.push_back(24);
          parts.emplace_back("<0xA9>");
        }
      }
      REQUIRE(replace_invalid_utf8(decoded(read, ids)) ==
              joined(reference(json["decoder"], parts)));
    }
  }
}

TEST_CASE("read_tokenizer_json: each document begins without the blank that encoding adds") {
  Json json = gapped_tokenizer(kLlama);
  const Vocabulary vocabulary = import_vocabulary(json.dump(), without_specials(), "t");
  // The texts are " the the" and " New York".
  shard::test::ListSink sink;
  CountedTokens counted(vocabulary, sink);
  const std::vector<std::vector<TokenId>> documents = {{4, 4}, {6}};
  std::string text;
  Decoder decoder(vocabulary, {}, [&text](std::string_view part) { text += part; });
  for (const auto& ids : documents) {
    counted.begin_document();
    counted.write(ids.data(), ids.size());
    decoder.begin_document();
    decoder.write(ids.data(), ids.size());
  }
  CHECK(text == "the theNew York");
  counted.finish(std::nullopt);
  CHECK(counted.counts().lines == 1);
  CHECK(counted.counts().bytes == static_cast<std::int64_t>(text.size()));
  CHECK(counted.counts().characters == static_cast<std::int64_t>(text.size()));
  CHECK(sink.documents == documents);
  // Vocabularies that differ in this blank have different meanings and hashes.
  json["decoder"]["decoders"].erase(3);
  CHECK(import_vocabulary(json.dump(), without_specials(), "t").hash() != vocabulary.hash());
  // An <eos> does not begin a document, so a blank after it stays.
  VocabularyImport rules;
  rules.eos_token = "<s>";
  const Vocabulary with_eos = import_vocabulary(gapped_tokenizer(kLlama).dump(), rules, "t");
  CHECK(decoded(with_eos, {4, *with_eos.eos(), 4}) == "the\n the");
  CHECK(decoded(with_eos, {*with_eos.eos(), 4}) == "\n the");
}

TEST_CASE(
    "read_tokenizer_json: bytes that are not UTF-8, and letters that are bytes, do not change") {
  const Vocabulary bytes =
      import_vocabulary(gapped_tokenizer(kLlama).dump(), without_specials(), "t");
  CHECK(decoded(bytes, {22, 8}) == "\xC3x");
  Json json = gapped_tokenizer(R"({"type": "ByteLevel"})");
  json["added_tokens"].push_back({{"id", 90}, {"content", "\u00E9t\u00E9"}});
  CHECK(decoded(import_vocabulary(json.dump(), without_specials(), "t"), {90}) == "\u00E9t\u00E9");
  // Without ByteFallback such a token is text.
  json = gapped_tokenizer(R"({"type": "Fuse"})");
  CHECK(decoded(import_vocabulary(json.dump(), without_specials(), "t"), {28}) == "<0x41>");
}

TEST_CASE("read_tokenizer_json: unsupported decoders are refused") {
  const auto refused = [](const std::string& decoder) {
    const Json json = gapped_tokenizer(decoder);
    return complaint([&] { import_vocabulary(json.dump(), without_specials(), "t.json"); });
  };
  const auto after = [&](const std::string& first, const std::string& second) {
    return refused(R"({"type": "Sequence", "decoders": [)" + first + "," + second + "]}");
  };
  const std::string fuse = R"({"type": "Fuse"})", fallback = R"({"type": "ByteFallback"})";
  const std::string mark =
      R"({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "})";
  const std::string meta = R"({"type": "Metaspace", "replacement": "\u2581"})";
  const auto strip = [](const char* content, int start, int stop) {
    return Json({{"type", "Strip"}, {"content", content}, {"start", start}, {"stop", stop}}).dump();
  };
  for (const char* type : {"WordPiece", "BPEDecoder", "CTC", "Other"}) {
    CHECK(contains(refused(Json({{"type", type}}).dump()), std::string("found ") + type));
  }
  CHECK(contains(refused(R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""})"),
                 "Replace has the pattern"));
  CHECK(contains(refused(R"({"type": "Strip", "content": "x", "start": 0, "stop": 2})"),
                 "the key \"decoder\" removes all text of the token with the id"));
  CHECK(contains(after(fuse, strip(" ", 2, 0)), "Strip removes 2 ' ' from the beginning"));
  CHECK(contains(after(fuse, strip(" ", 1, 1)), "expected one blank from its beginning"));
  CHECK(contains(after(fuse, strip("x", 1, 0)), "Strip removes 1 'x'"));
  CHECK(after(fuse, strip(" ", 0, 0)).empty());
  CHECK(contains(after(fuse, mark), "Replace follows decoders that join"));
  CHECK(contains(after(fallback, mark), "Replace follows decoders that join"));
  CHECK(contains(after(fuse, fallback), "ByteFallback follows decoders that join"));
  CHECK(contains(after(fallback, meta), "Metaspace follows decoders that join"));
  CHECK(contains(after(fallback, strip(" ", 1, 0)), "Strip follows decoders that join"));
  CHECK(contains(after(mark, meta), "Metaspace follows another decoder"));
  CHECK(contains(after(meta, mark), "Replace follows decoders that join"));
  Json json = gapped_tokenizer(meta);
  json["added_tokens"].push_back({{"id", 90}, {"content", "a b\n"}});
  CHECK(contains(complaint([&] { import_vocabulary(json.dump(), {}, "t.json"); }),
                 "the token 'a b\\n' has a blank that Metaspace keeps at the beginning of a text"));
}

}  // namespace
}  // namespace ql::text
