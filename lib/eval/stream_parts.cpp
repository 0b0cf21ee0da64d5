// Plans the parts of a stream, and reads a part as a stream of its own.

#include "eval/stream_parts.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "net/context.h"

namespace ql::eval {

static std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

std::int64_t warm_up_segments(const net::Geometry& geometry) {
  if (geometry.keeps_most_used()) return kWholeStream;
  const std::vector<std::int64_t> oldest = net::oldest_dependencies(geometry);
  const std::int64_t tokens = -*std::min_element(oldest.begin(), oldest.end());
  return tokens > 0 ? divide_up(tokens, geometry.lengths.segment) : 0;
}

std::vector<StreamPart> plan_parts(std::int64_t segments, std::int64_t warm_up,
                                   std::int64_t count) {
  if (segments < 1 || warm_up < 0 || count < 1) {
    throw std::logic_error("plan_parts: a negative length, an empty stream or no part");
  }
  // With B parts of equal length T the stream has T + (B - 1) (T - warm_up) segments. If B > 1, T
  // exceeds warm_up, so that every part except the first reads a complete warm-up.
  const std::int64_t length =
      segments <= warm_up ? segments : warm_up + divide_up(segments - warm_up, count);
  std::vector<StreamPart> parts{{0, 0, length}};
  while (parts.back().end < segments) {
    const std::int64_t start = parts.back().end;
    parts.push_back({start - warm_up, start, std::min(segments, start - warm_up + length)});
  }
  return parts;
}

TokenSource part_of(const TokenSource& whole, std::int64_t begin, std::int64_t end) {
  TokenSource part;
  part.name = whole.name;
  part.tokens = end - begin;
  part.read = [read = whole.read, begin](std::int64_t position, std::int64_t count,
                                         std::int64_t* out) { read(begin + position, count, out); };
  if (whole.document_starts) {
    const auto own = std::make_shared<std::vector<std::int64_t>>();
    part.document_starts = [all = whole.document_starts, own, begin,
                            end]() -> const std::vector<std::int64_t>& {
      own->clear();
      for (const std::int64_t start : all()) {
        if (start >= begin && start < end) own->push_back(start - begin);
      }
      return *own;
    };
  }
  return part;
}

}  // namespace ql::eval
