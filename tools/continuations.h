// Writes what qlgen generates: as a token stream, or as text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/provenance.h"
#include "base/stream.h"
#include "base/tool.h"
#include "generate/generator.h"
#include "shard/token_stream.h"
#include "text/decoder.h"

// Takes the continuations of the prompts, one after the other.
class Continuations {
 public:
  virtual ~Continuations() = default;
  virtual void begin(std::int64_t prompt, std::int64_t sample) = 0;  // numbers from 0
  virtual void put(const ql::generate::GeneratedToken& token) = 0;
  virtual void end() = 0;
  virtual void flush() = 0;
  // Completes the output, also if the newest continuation has not ended.
  virtual void close() = 0;
};

// Writes a token stream with a document for every continuation.
class TokenOutput : public Continuations {
 public:
  TokenOutput(const ql::Options& options, const ql::shard::StreamHeader& prompts)
      : stream_(ql::shard::make_stream_writer(
            [this](const void* data, std::size_t size) {
              complete_ = false;
              out_.write(data, size);
              out_.flush();
              complete_ = true;
            },
            {prompts.vocabulary, prompts.vocabulary_text,
             ql::provenance(ql::configuration_of(options))})) {}
  void begin(std::int64_t prompt, std::int64_t sample) override {
    stream_->begin_document();
    prompt_ = prompt;
    sample_ = sample;
    empty_ = true;
  }
  void put(const ql::generate::GeneratedToken& token) override {
    if (token.before_string) return;
    stream_->write(&token.id, 1);
    empty_ = false;
  }
  void end() override {
    // A token stream has no empty documents (ql-token-stream(5)).
    if (!empty_) return;
    ql::log_warning(
        "prompt {}, sample {}: the continuation is empty, because it begins with a string of "
        "--until; the output has no document for it",
        prompt_ + 1, sample_ + 1);
  }
  void flush() override { stream_->flush(); }
  void close() override {
    // If a signal interrupted the write of a block, its reader must not find an end.
    if (!complete_) return;
    stream_->finish(std::nullopt);
    out_.close();
  }

 private:
  ql::OutputStream out_{"-", /*binary=*/true};
  bool complete_ = true;  // all blocks were written
  std::unique_ptr<ql::shard::TokenSink> stream_;
  std::int64_t prompt_ = 0, sample_ = 0;  // of the newest continuation
  bool empty_ = false;                    // it has no token yet
};

// Decodes a token, but nothing of a stop string.
inline void decode(const ql::generate::GeneratedToken& token, ql::text::Decoder& decoder) {
  if (!token.before_string) {
    decoder.write(&token.id, 1);
  } else if (*token.before_string > 0) {
    decoder.write_beginning(token.id, *token.before_string);
  }
}

// Writes the prompt and one continuation as one text, for every continuation. Each text begins on a
// new line.
class TextOutput : public Continuations {
 public:
  TextOutput(ql::text::DecodedTokens tokens, ql::text::LineStyle style,
             std::vector<ql::shard::TokenId> prompt)
      : decoder_(std::move(tokens), {ql::text::EosRule::kLine, style},
                 [this](std::string_view text) {
                   complete_ = false;
                   out_.write(text);
                   complete_ = true;
                   last_ = text.back();
                 }),
        prompt_(std::move(prompt)) {}
  void begin(std::int64_t /*prompt*/, std::int64_t /*sample*/) override {
    decoder_.begin_document();
    decoder_.write(prompt_.data(), prompt_.size());
  }
  void put(const ql::generate::GeneratedToken& token) override { decode(token, decoder_); }
  void end() override {
    decoder_.finish(std::nullopt);
    if (last_ != '\n') out_.write("\n");
    last_ = '\n';
  }
  void flush() override {
    complete_ = false;
    out_.flush();
    complete_ = true;
  }
  void close() override {
    // If a signal interrupted a write, the text must not seem complete.
    if (!complete_) return;
    end();
    out_.close();
  }

 private:
  ql::OutputStream out_{"-", /*binary=*/false};
  bool complete_ = true;  // everything was written
  char last_ = '\n';
  ql::text::Decoder decoder_;
  std::vector<ql::shard::TokenId> prompt_;
};
