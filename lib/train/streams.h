// Reads the training data as parallel streams.
//
// With N tokens and B rows, row b reads the part [b * L, (b + 1) * L) with L = floor(N / B), one
// segment a step. A step predicts every token of its segment from the previous ones, so an epoch
// has floor((L - 1) / segment) steps; the few tokens that do not fill a segment at a part's end are
// not read. All rows reach the end of their parts together; then each starts its part again, and
// the caller starts with an empty memory.
//
// The segments of a part have numbers, the cursors: 0, 1, 2 and so on through all epochs. Step k
// reads segment k, unless set_cursor() has moved it because steps were skipped or taken back, or
// because the parts were cut again. A resume needs no other state. One thread reads the next step
// in advance; its exceptions are rethrown by the read() of that step. If the system grants no
// thread, read() does all the work.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "base/jobs.h"
#include "machine/threads.h"
#include "shard/multi_reader.h"

namespace ql::train {

class Streams {
 public:
  // `reader` must outlive the streams. read() and document_ages() return the rows `own`
  // (machine::ProcessGroup::share_of), or all if it is absent. Throws Error if the data is too
  // short for one step, naming the largest batch that would do.
  Streams(shard::MultiReader& reader, std::int64_t batch, std::int64_t segment,
          const std::optional<machine::RowRange>& own = std::nullopt);
  ~Streams();
  Streams(Streams&&) = delete;

  std::int64_t batch() const { return batch_; }
  std::int64_t segment() const { return segment_; }
  std::int64_t row_tokens() const { return row_tokens_; }  // L
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // From now on step `step` reads segment `cursor`, the next one the segment after it, and so on.
  void set_cursor(std::int64_t step, std::int64_t cursor);
  // Returns the segment at the same fraction of the same epoch, rounded down, as segment `cursor`
  // was when there were `batch` rows. So hardly any data is read twice or left out; the caller
  // starts with empty memories, because no earlier row ends where one of these goes on.
  std::int64_t cursor_from(std::int64_t batch, std::int64_t cursor) const;

  std::int64_t epoch(std::int64_t step) const { return (step + ahead_of_step_) / steps_per_epoch_; }
  bool starts_epoch(std::int64_t step) const { return position(step) == 0; }
  // Returns the token of each row's part at which step `step` begins.
  std::int64_t position(std::int64_t step) const {
    return (step + ahead_of_step_) % steps_per_epoch_ * segment_;
  }

  // Writes the ids of step `step` (from 0) to `out` [own rows, segment + 1], row-major. They are
  // the tokens and the last one's target. Token j + 1 is the target of token j.
  void read(std::int64_t step, std::int64_t* out);

  // Returns, for every row, how many tokens the document in which step `step` begins has before the
  // step. They are counted in the data: a part that begins inside a document continues it, from an
  // empty memory.
  std::vector<std::int64_t> document_ages(std::int64_t step) const {
    return document_ages(step, own_);
  }
  std::vector<std::int64_t> document_ages(std::int64_t step, const machine::RowRange& rows) const;

 private:
  shard::MultiReader& reader_;
  using Ids = std::vector<std::int64_t>;
  Ids read_now(std::int64_t step) const;

  void begin_to_read(std::int64_t step);
  void drop_ahead();

  std::int64_t batch_, segment_, row_tokens_, steps_per_epoch_ = 0;
  machine::RowRange own_;
  std::int64_t ahead_of_step_ = 0;  // cursor less step
  std::future<Ids> ahead_;          // of step next_; the thread owns the reader until it is ready
  std::int64_t next_ = -1;
  std::unique_ptr<WorkerThreads> thread_;  // null: the system granted none
};

}  // namespace ql::train
