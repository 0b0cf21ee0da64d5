#include "train/step_loss.h"

namespace ql::train {

StepLoss step_loss(const nn::ModelAtLengths& model, const at::Tensor& ids, nn::Memory& memory,
                   const nn::StepOptions& options, const TrainingConfig& config) {
  const std::int64_t rows = ids.size(0), segment = ids.size(1) - 1;
  const std::int64_t context = config.half_loss ? segment / 2 : 0, counted = segment - context;
  at::Tensor reconstruction;
  const at::Tensor states =
      model.forward(ids.narrow(1, 0, segment), memory, options, &reconstruction);
  StepLoss result;
  result.loss =
      model.model().loss(states.narrow(1, context, counted), ids.narrow(1, context + 1, counted),
                         1 / static_cast<double>(config.batch * counted));
  const double share = static_cast<double>(rows) / static_cast<double>(config.batch);
  const double weight = share * config.recons_loss_weight.value_or(kReconstructionWeight);
  result.total = reconstruction.defined() ? result.loss + weight * reconstruction : result.loss;
  return result;
}

}  // namespace ql::train
