// Writes the losses of single tokens for a script to align with the tokens: one little-endian
// float32 per target, natural logarithm, in stream order, and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace ql::eval {

// Keeps 4 bytes a target in memory, because columns finish their targets out of order.
class LossFile {
 public:
  // `path` "-" is standard output. Either is opened here, so that a path that cannot be written
  // fails before the work is done. `targets` are the stream's tokens without the first.
  LossFile(const std::string& path, std::int64_t targets);
  // A LossSink: `position` counts tokens of the stream, so the first target has position 1.
  void put(std::int64_t position, const double* losses, std::int64_t count);
  // Writes everything; the file appears whole or not at all.
  void commit();

 private:
  std::unique_ptr<AtomicFile> file_;
  std::unique_ptr<OutputStream> output_;
  std::vector<float> losses_;
};

}  // namespace ql::eval
