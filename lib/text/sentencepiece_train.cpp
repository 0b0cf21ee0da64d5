#include <sentencepiece_trainer.h>

#include <string>
#include <unordered_map>

#include "base/error.h"
#include "text/sentencepiece_model.h"

namespace ql::text {
namespace {

// Feeds the library; it keeps its own copy of every line.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string_view>& lines) : lines_(lines) { load(); }
  bool done() const override { return next_ == lines_.size(); }
  void Next() override {
    ++next_;
    load();
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void load() {
    if (!done()) line_ = lines_[next_];
  }
  const std::vector<std::string_view>& lines_;
  std::size_t next_ = 0;
  std::string line_;
};

}  // namespace

std::string train_sentencepiece(const std::vector<std::string_view>& lines,
                                const SentencePieceTraining& training) {
  // The number of threads decides in which order the library adds numbers, so it is fixed: the
  // model must not depend on the machine.
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(training.max_size)},
      {"hard_vocab_limit", "false"},
      {"byte_fallback", training.byte_pieces ? "true" : "false"},
      {"eos_id", "0"},
      {"eos_piece", "<eos>"},
      {"unk_id", "1"},
      {"unk_piece", "<unk>"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"max_sentence_length", "1073741824"},
      {"num_threads", "4"},
      {"minloglevel", "3"},
  };
  Lines iterator(lines);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (status.ok()) return model;
  throw ConfigError("SentencePiece",
                    fmt::format("no vocabulary of {} pieces can be trained on this text ({})",
                                training.max_size, status.ToString()),
                    "give another --max-size, or more text");
}

}  // namespace ql::text
