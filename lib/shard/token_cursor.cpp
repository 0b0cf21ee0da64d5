#include "shard/token_cursor.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"

namespace ql::shard {

TokenCursor::TokenCursor(TokenReader& reader, std::size_t slot, std::int64_t position)
    : reader_(&reader), slot_(slot) {
  seek(position);
}

void TokenCursor::seek(std::int64_t position) {
  if (position < 0 || position > reader_->tokens()) {
    throw std::out_of_range(
        fmt::format("{}: position {} of {} tokens", reader_->name(), position, reader_->tokens()));
  }
  position_ = position;
}

std::int64_t TokenCursor::read(std::int64_t count, std::int64_t* out) {
  const std::int64_t part = std::min(count, remaining());
  reader_->read(position_, part, out, slot_);
  position_ += part;
  return part;
}

Json TokenCursor::to_json() const {
  return Json{{"data", reader_->hash()}, {"tokens", reader_->tokens()}, {"position", position_}};
}

void TokenCursor::restore(const JsonObject& saved) {
  const std::string data = saved.text("data");
  if (data != reader_->hash() || saved.integer("tokens") != reader_->tokens()) {
    throw FormatError(saved.where(),
                      fmt::format("the position was saved on data {} with {} tokens, but {} is "
                                  "data {} with {}",
                                  data, saved.integer("tokens"), reader_->name(), reader_->hash(),
                                  reader_->tokens()),
                      "go on with the same data, or start anew");
  }
  position_ = saved.integer("position", 0, reader_->tokens());
}

}  // namespace ql::shard
