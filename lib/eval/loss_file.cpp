#include "eval/loss_file.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/little_endian.h"

namespace ql::eval {
namespace {

constexpr std::size_t kLossesPerWrite = 65536;

}  // namespace

LossFile::LossFile(const std::string& path, std::int64_t targets)
    : losses_(static_cast<std::size_t>(targets)) {
  if (path == "-") {
    output_ = std::make_unique<OutputStream>(/*binary=*/true);
  } else {
    file_ = std::make_unique<AtomicFile>(path);
  }
}

void LossFile::put(std::int64_t position, const double* losses, std::int64_t count) {
  const auto targets = static_cast<std::int64_t>(losses_.size());
  if (position < 1 || count < 0 || position - 1 > targets - count) {
    throw std::out_of_range("losses outside the stream");
  }
  std::transform(losses, losses + count, losses_.begin() + (position - 1),
                 [](double loss) { return static_cast<float>(loss); });
}

void LossFile::commit() {
  std::string bytes;
  for (std::size_t begin = 0; begin < losses_.size(); begin += kLossesPerWrite) {
    const std::size_t end = std::min(losses_.size(), begin + kLossesPerWrite);
    bytes.clear();
    for (std::size_t i = begin; i < end; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &losses_[i], sizeof bits);
      append_little_endian(bytes, bits);
    }
    if (file_) {
      file_->write(bytes);
    } else {
      output_->write(bytes);
    }
  }
  if (file_) {
    file_->commit();
  } else {
    output_->close();
  }
}

}  // namespace ql::eval
