#include "shard/frames_ahead_internal.h"

#include <exception>

#include "base/error.h"

namespace ql::shard {

void FramesAhead::add(const std::shared_ptr<ShardReader>& shard, std::size_t frame) {
  if (idle_.empty()) idle_.push_back(std::make_shared<FrameBuffer>());
  const std::shared_ptr<FrameBuffer> buffer = std::move(idle_.back());
  idle_.pop_back();
  // A frame that cannot be read must not hide those before it, which are still on their way.
  std::exception_ptr unreadable;
  try {
    shard->load_frame(frame, *buffer);
  } catch (const Error&) {
    unreadable = std::current_exception();
  }
  jobs_.add(
      [shard, frame, buffer, unreadable] {
        if (unreadable) std::rethrow_exception(unreadable);
        shard->decode_frame(frame, *buffer);
        return Frame{shard->frame_begin(frame), buffer};
      },
      shard->frame_memory(frame));
}

}  // namespace ql::shard
