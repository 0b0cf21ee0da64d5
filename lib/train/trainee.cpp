#include "train/trainee.h"

#include "train/device_learner.h"
#include "train/learner.h"

namespace ql::train {

std::unique_ptr<Trainee> make_trainee(const net::Network& network, const TrainingConfig& config,
                                      const Place& place, nn::ProcessGroup* group) {
  if (place.device.is_cpu()) {
    return std::make_unique<Learner>(network, config, group);
  }
  return std::make_unique<DeviceLearner>(network, config, place, group);
}

}  // namespace ql::train
