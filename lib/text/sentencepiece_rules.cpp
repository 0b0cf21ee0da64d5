#include "text/sentencepiece_rules_internal.h"

#include <cstdint>

namespace ql::text {
namespace {

// The fields of a message in protobuf's wire format, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  // False at the end and where the format is broken.
  bool next() {
    if (rest_.empty() || broken_) return false;
    const std::uint64_t key = number();
    field_ = key >> 3;
    content_ = {};
    switch (key & 7) {
      case 0:  // a number
        number();
        break;
      case 1:
        take(8);
        break;
      case 2:
        content_ = take(number());
        break;
      case 5:
        take(4);
        break;
      default:  // groups are long out of use
        broken_ = true;
    }
    broken_ = broken_ || key > UINT32_MAX;
    return !broken_;
  }
  std::uint64_t field() const { return field_; }
  std::string_view content() const { return content_; }  // of a text or message
  bool broken() const { return broken_; }

 private:
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (broken_) return 0;
      const auto bits = static_cast<unsigned char>(byte.front());
      value |= std::uint64_t{bits & 0x7FU} << shift;
      if (bits < 0x80) return value;
    }
    broken_ = true;
    return 0;
  }

  std::string_view take(std::uint64_t size) {
    broken_ = broken_ || size > rest_.size();
    if (broken_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_, content_;
  std::uint64_t field_ = 0;
  bool broken_ = false;
};

// The numbers of sentencepiece_model.proto.
constexpr std::uint64_t kNormalizerSpec = 3, kDenormalizerSpec = 5, kPrecompiledCharsmap = 2;

bool has_rules(std::string_view spec) {
  Fields fields(spec);
  while (fields.next()) {
    if (fields.field() == kPrecompiledCharsmap && !fields.content().empty()) return true;
  }
  return fields.broken();
}

}  // namespace

bool rewrites_text(std::string_view serialized) {
  Fields fields(serialized);
  while (fields.next()) {
    const bool is_spec = fields.field() == kNormalizerSpec || fields.field() == kDenormalizerSpec;
    if (is_spec && has_rules(fields.content())) return true;
  }
  return fields.broken();
}

}  // namespace ql::text
