#include "train/trained_network.h"

#include "train/trained_on_cpu.h"
#include "train/trained_on_device.h"

namespace ql::train {

std::unique_ptr<TrainedNetwork> make_trained_network(const net::Network& network,
                                                     const TrainingConfig& config,
                                                     const ComputeDevice& compute,
                                                     machine::ProcessGroup* group) {
  if (compute.device.is_cpu()) return std::make_unique<TrainedOnCpu>(network, config, group);
  return std::make_unique<TrainedOnDevice>(network, config, compute, group);
}

}  // namespace ql::train
