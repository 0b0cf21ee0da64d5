#include <sentencepiece_trainer.h>

#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/signals.h"
#include "text/sentencepiece_model.h"

namespace ql::text {
namespace {

// Feeds the library; it keeps its own copy. In parts, because it leaves out every part with a
// character that it reserves.
class Parts : public sentencepiece::SentenceIterator {
 public:
  explicit Parts(const std::vector<std::string_view>& lines) : lines_(lines) { Parts::Next(); }
  bool done() const override { return done_; }
  void Next() override {
    while (rest_.empty() && next_line_ < lines_.size()) rest_ = lines_[next_line_++];
    done_ = rest_.empty();
    const std::size_t size = sentencepiece_part(rest_);
    part_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  const std::string& value() const override { return part_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string_view>& lines_;
  std::size_t next_line_ = 0;
  std::string_view rest_;  // of the line before next_line_
  std::string part_;
  bool done_ = false;
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
  Parts iterator(lines);
  std::string model;
  const StopAtOnce unheard;  // training takes minutes and does not look at signals
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (status.ok()) return model;
  throw ConfigError("SentencePiece",
                    fmt::format("no vocabulary of {} pieces can be trained on this text ({})",
                                training.max_size, status.ToString()),
                    "give another --max-size, or more text");
}

}  // namespace ql::text
