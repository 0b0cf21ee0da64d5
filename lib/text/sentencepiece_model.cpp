#include "text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <new>

#include "base/error.h"
#include "base/utf8.h"
#include "text/sentencepiece_rules_internal.h"

namespace ql::text {

std::size_t sentencepiece_part(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return text.size();
  const std::string_view head = text.substr(0, longest);
  const std::size_t blank = head.rfind(' ');
  if (blank != std::string_view::npos && blank > 0) return blank;
  return head.size() - incomplete_suffix(head);
}

namespace {

// Returns what is wrong, or "". The library throws when it cannot sort the pieces.
std::string load(sentencepiece::SentencePieceProcessor& processor, std::string_view serialized) {
  try {
    const auto status = processor.LoadFromSerializedProto(serialized);
    return status.ok() ? "" : status.ToString();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

SentencePieceModel::SentencePieceModel(std::string_view serialized, const std::string& where)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const SentencePieceRules rules = sentencepiece_rules(serialized);
  if (!rules.problem.empty()) {
    throw FormatError(where, fmt::format("not a SentencePiece model to use: {}", rules.problem),
                      "copy the model again, or make a vocabulary with qltok vocab");
  }
  keeps_text_ = rules.keeps_text;
  if (rules.adds_prefix) leading_blanks_ = LeadingBlanks::kOne;
  if (rules.removes_blanks) leading_blanks_ = LeadingBlanks::kAll;
  if (const std::string problem = load(*processor_, serialized); !problem.empty()) {
    throw FormatError(where, fmt::format("not a SentencePiece model ({})", problem));
  }
  if (processor_->unk_id() < 0) {
    throw FormatError(where, "a SentencePiece model without an unknown piece");
  }
  const int feed = processor_->PieceToId("\n");
  if (processor_->IdToPiece(feed) == "\n" && !processor_->IsControl(feed)) {
    line_feed_ = static_cast<std::uint32_t>(feed);
  }
}

SentencePieceModel::~SentencePieceModel() = default;

std::uint32_t SentencePieceModel::size() const {
  return static_cast<std::uint32_t>(processor_->GetPieceSize());
}

const std::string& SentencePieceModel::piece(std::uint32_t id) const {
  return processor_->IdToPiece(static_cast<int>(id));
}

bool SentencePieceModel::is_byte(std::uint32_t id) const {
  return processor_->IsByte(static_cast<int>(id));
}

bool SentencePieceModel::is_control(std::uint32_t id) const {
  return processor_->IsControl(static_cast<int>(id));
}

std::uint32_t SentencePieceModel::unk() const {
  return static_cast<std::uint32_t>(processor_->unk_id());
}

std::optional<std::uint32_t> SentencePieceModel::eos() const {
  const int id = processor_->eos_id();
  if (id < 0) return std::nullopt;
  return static_cast<std::uint32_t>(id);
}

void SentencePieceModel::encode(std::string_view text, std::vector<std::uint32_t>& ids) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode(text, &pieces);
  if (!status.ok()) throw Error("SentencePiece", status.ToString());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

}  // namespace ql::text
