// Divides the data among the rows of the batch, and reads one step in advance.

#include "train/streams.h"

#include "base/json.h"
#include "shard/document_starts.h"

namespace ql::train {

static std::int64_t segments_of_part(std::int64_t tokens, std::int64_t batch,
                                     std::int64_t segment) {
  return (tokens / batch - 1) / segment;
}

// A training run also works without this thread, so it must not fail if the system grants none.
static std::unique_ptr<WorkerThreads> one_thread() {
  try {
    return std::make_unique<WorkerThreads>(1);
  } catch (const Error&) {
    return nullptr;
  }
}

Streams::Streams(shard::MultiReader& reader, std::int64_t batch, std::int64_t segment,
                 const std::optional<machine::RowRange>& own)
    : reader_(reader),
      batch_(batch),
      segment_(segment),
      row_tokens_(reader.tokens() / std::max<std::int64_t>(1, batch)),
      own_(own.value_or(machine::RowRange{0, batch})) {
  check_range("streams", "batch", batch, {1});
  check_range("streams", "segment", segment, {1});
  if (own_.first < 0 || own_.count < 0 || own_.first + own_.count > batch) {
    throw ConfigError("streams", fmt::format("{} rows from row {} on are outside the batch {}",
                                             own_.count, own_.first, batch));
  }
  if (row_tokens_ < segment + 1) {
    const std::int64_t largest = reader.tokens() / (segment + 1);
    throw Error(reader.name(),
                fmt::format("the number of tokens is {}, too small for batch {}: each row needs "
                            "segment + 1 = {} tokens",
                            with_thousands(reader.tokens()), batch, segment + 1),
                largest > 1    ? fmt::format("set batch to {} or less, or use more data", largest)
                : largest == 1 ? "set batch to 1, or use more data"
                               : "use a shorter segment or more data");
  }
  steps_per_epoch_ = segments_of_part(reader.tokens(), batch, segment);
  thread_ = one_thread();
}

// The thread must have stopped reading before the reader is destroyed.
Streams::~Streams() { drop_ahead(); }

void Streams::drop_ahead() {
  if (ahead_.valid()) {
    ahead_.wait();
    ahead_ = {};
  }
}

void Streams::set_cursor(std::int64_t step, std::int64_t cursor) {
  if (cursor - step != ahead_of_step_) {
    drop_ahead();
    ahead_of_step_ = cursor - step;
  }
}

std::int64_t Streams::cursor_from(std::int64_t batch, std::int64_t cursor) const {
  const std::int64_t segments = segments_of_part(reader_.tokens(), batch, segment_);
  if (segments < 1) {
    throw FormatError(
        reader_.name(),
        fmt::format("the data is too short for {}, the batch of the checkpoint", batch));
  }
  // This is exact while the product is below 2^53; beyond that the error does not matter.
  const double moved = static_cast<double>(cursor % segments) *
                       static_cast<double>(steps_per_epoch_) / static_cast<double>(segments);
  const auto within = std::min(static_cast<std::int64_t>(moved), steps_per_epoch_ - 1);
  return cursor / segments * steps_per_epoch_ + within;
}

Streams::Ids Streams::read_now(std::int64_t step) const {
  const std::int64_t count = segment_ + 1;
  Ids ids(static_cast<std::size_t>(own_.count * count));
  for (std::int64_t b = 0; b < own_.count; ++b) {
    reader_.read((own_.first + b) * row_tokens_ + position(step), count, ids.data() + b * count,
                 static_cast<std::size_t>(b));
  }
  return ids;
}

void Streams::begin_to_read(std::int64_t step) {
  if (!thread_) return;
  const auto task =
      std::make_shared<std::packaged_task<Ids()>>([this, step] { return read_now(step); });
  ahead_ = task->get_future();
  thread_->run([task] { (*task)(); });
}

void Streams::read(std::int64_t step, std::int64_t* out) {
  if (next_ != step) drop_ahead();
  const Ids ids = ahead_.valid() ? ahead_.get() : read_now(step);
  next_ = step + 1;
  begin_to_read(step + 1);
  std::copy(ids.begin(), ids.end(), out);
}

std::vector<std::int64_t> Streams::document_offsets(std::int64_t step,
                                                    const machine::RowRange& rows) const {
  // One thread at a time may use reader_.
  if (ahead_.valid()) ahead_.wait();
  std::vector<std::int64_t> document_offsets;
  for (std::int64_t b = 0; b < rows.count; ++b) {
    document_offsets.push_back(shard::document_offset(
        reader_.document_starts(), (rows.first + b) * row_tokens_ + position(step)));
  }
  return document_offsets;
}

}  // namespace ql::train
