// The records of TensorBoard's event files as bytes. A record is a TFRecord: length, checksum of
// the length, a message, checksum of the message. The message is an Event of TensorFlow's
// event.proto, in the encoding of protocol buffers. No such library is needed for the few fields
// used here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ql {

struct Scalar {
  std::string tag;  // "train/loss"; what stands before the slash becomes a group of charts
  double value;     // stored as float32
};

// A file begins with these: its version and the start of a session. A reader that has seen events
// of earlier files of the folder forgets them at the latter. `time` is in seconds since 1970.
std::string event_file_start(double time);

// The values at a step.
std::string scalar_event(double time, std::int64_t step, const std::vector<Scalar>& scalars);

}  // namespace ql
