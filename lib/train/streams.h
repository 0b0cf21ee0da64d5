// Reads the training data as parallel streams.
//
// With N tokens and B rows, row b reads the part [b * L, (b + 1) * L) with L = floor(N / B), one
// segment per step. A step predicts the token after every token of its segment, so an epoch has
// floor((L - 1) / segment) steps; the last tokens of a part that do not fill a segment are not
// read. All rows reach the end of their parts together. Then they start again, and the caller
// starts with an empty memory.
//
// The segments of a part have the numbers 0, 1, 2 and so on through all epochs. The cursor is the
// number of the segment that the next step reads. Usually step k reads segment k. This changes if
// steps are skipped or rolled back, or the data is cut into another number of parts. A resume needs
// only the step and the cursor. One thread reads the next step in advance; its exceptions are
// rethrown by the read() of that step. If the system grants no thread, read() does all the work.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "base/jobs.h"
#include "machine/process_group.h"
#include "shard/multi_reader.h"

namespace ql::train {

class Streams {
 public:
  // `reader` must outlive the streams, and nothing else may read from it, because the thread does.
  // read() and document_offsets(step) return only the rows `own` (machine::ProcessGroup::share_of),
  // or all rows if `own` is absent. Throws ConfigError if `batch` or `segment` is below 1 or `own`
  // is outside the batch, and Error if the data is too short for one step; the error names the
  // largest possible batch, if any.
  Streams(shard::MultiReader& reader, std::int64_t batch, std::int64_t segment,
          const std::optional<machine::RowRange>& own = std::nullopt);
  ~Streams();
  Streams(Streams&&) = delete;

  std::int64_t batch() const { return batch_; }
  std::int64_t segment() const { return segment_; }
  const machine::RowRange& rows() const { return own_; }   // the rows that are read
  std::int64_t row_tokens() const { return row_tokens_; }  // L
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // From now on step `step` reads segment `cursor`, step `step` + 1 the next segment, and so on.
  void set_cursor(std::int64_t step, std::int64_t cursor);
  // Converts a `cursor` for the same data in `batch` parts to a cursor for this object's parts. The
  // result is at the same fraction of the same epoch, rounded down to a segment. If the batch
  // changes in the middle of an epoch, the first half of each old part and the second half of each
  // new part are read. So about a quarter of the data is read twice, and a quarter is not read. The
  // caller starts with empty memories, because the old memories are of other text. Throws
  // FormatError if the data is too short for `batch` parts.
  std::int64_t cursor_from(std::int64_t batch, std::int64_t cursor) const;

  std::int64_t epoch(std::int64_t step) const { return (step + ahead_of_step_) / steps_per_epoch_; }
  bool starts_epoch(std::int64_t step) const { return position(step) == 0; }
  // Returns the offset in each row's part at which step `step` begins.
  std::int64_t position(std::int64_t step) const {
    return (step + ahead_of_step_) % steps_per_epoch_ * segment_;
  }

  // Writes the ids of step `step` (from 0) to `out` [own rows, segment + 1], row-major. A row has
  // the tokens of the segment and one more, because token j + 1 is the target of token j.
  void read(std::int64_t step, std::int64_t* out);

  // Returns, for every row, the number of tokens of the current document before the first token of
  // step `step`. This counts tokens of the data: if a row's part begins inside a document, the
  // count includes tokens before the part, although the memory is empty.
  std::vector<std::int64_t> document_offsets(std::int64_t step) const {
    return document_offsets(step, own_);
  }
  std::vector<std::int64_t> document_offsets(std::int64_t step,
                                             const machine::RowRange& rows) const;

 private:
  shard::MultiReader& reader_;
  using Ids = std::vector<std::int64_t>;
  Ids read_now(std::int64_t step) const;

  void begin_to_read(std::int64_t step);
  void drop_ahead();

  std::int64_t batch_, segment_, row_tokens_, steps_per_epoch_ = 0;
  machine::RowRange own_;
  std::int64_t ahead_of_step_ = 0;  // (segment that a step reads) - (number of the step)
  std::future<Ids> ahead_;          // ids of step next_; until ready, the thread owns the reader
  std::int64_t next_ = -1;
  std::unique_ptr<WorkerThreads> thread_;  // null: the system granted none
};

}  // namespace ql::train
