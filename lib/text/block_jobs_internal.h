// Lets several threads work on the blocks of a text.
#pragma once

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/ordered_jobs.h"
#include "text/text_reader.h"

namespace ql::text {

// Calls use(work(block)) for all blocks in their order: `work` on `threads` threads, `use` on the
// calling one. An error of the input is thrown when all that came before it has been used.
template <typename Work, typename Use>
void work_on_blocks(TextReader& reader, int threads, const Work& work, const Use& use) {
  OrderedJobs<std::invoke_result_t<const Work&, TextBlock>> jobs(threads);
  std::exception_ptr error;
  const auto next = [&]() -> std::optional<TextBlock> {
    try {
      TextBlock block;
      if (reader.next(block)) return block;
    } catch (const Error&) {
      error = std::current_exception();
    }
    return std::nullopt;
  };
  while (std::optional<TextBlock> block = next()) {
    const std::size_t bytes = block->text.size();
    jobs.add([&work, text = std::move(*block)]() mutable { return work(std::move(text)); }, bytes);
    while (jobs.full()) use(jobs.take());
    // While more text is waited for, all of what has come is passed on, and what is wrong with it
    // is said.
    while (!reader.has_more() && !jobs.empty()) use(jobs.take());
  }
  while (!jobs.empty()) use(jobs.take());
  if (error) std::rethrow_exception(error);
}

}  // namespace ql::text
