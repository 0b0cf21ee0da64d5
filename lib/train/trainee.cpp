#include "train/trainee.h"

#include <cmath>

#include "base/error.h"
#include "train/device_learner.h"
#include "train/learner.h"

namespace ql::train {

void require_finite(double value, const char* what, std::int64_t step) {
  if (!std::isfinite(value)) {
    throw Error(fmt::format("step {}", step + 1),
                fmt::format("the {} is {}", what, std::isnan(value) ? "not a number" : "infinite"),
                "train again with a lower learning_rate, more warmup_steps or a smaller clip; "
                "--init can start from a checkpoint of this run, if it has one");
  }
}

std::unique_ptr<Trainee> make_trainee(const net::Network& network, const TrainingConfig& config,
                                      const Place& place, nn::ProcessGroup* group) {
  if (place.device.is_cpu()) {
    return std::make_unique<Learner>(network, config, group);
  }
  if (group != nullptr) {
    throw UsageError("--device",
                     fmt::format("{}: several processes train on the CPU only", place.device.str()),
                     "use one process for a GPU");
  }
  return std::make_unique<DeviceLearner>(network, config, place);
}

}  // namespace ql::train
