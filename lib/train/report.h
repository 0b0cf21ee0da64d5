// Makes the texts of a training: its first lines and the progress line. Nothing is printed here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/network.h"
#include "train/config.h"
#include "train/estimate.h"
#include "train/state.h"
#include "train/streams.h"

namespace ql::train {

// The figures of the progress line and of a "train" record of the log.
struct Figures {
  std::int64_t step = 0;     // finished steps
  double loss = 0;           // mean since the last record, nats per token
  double learning_rate = 0;  // of the last step
  double gradient_norm = 0;  // mean since the last record, before clipping
  double tokens_per_second = 0;
  double seconds_left = 0;  // until the schedule's end; negative: not known yet
};

// "14h20m left", "1,020 tokens/s", "loss 4.812", "perplexity 123.0", "step 1,200 of 60,000",
// "learning rate 2.4e-04", "gradient 0.35": what somebody in front of a narrow terminal wants to
// know most comes first.
std::vector<std::string> figures_words(const Figures& figures, std::int64_t steps);

// "Transformer-QL, 8 layers (3, 3 + 2 output), d_model 256, 9,254,144 parameters" and the lengths
// with the context length, one line each.
std::vector<std::string> network_lines(const net::Network& network, std::int64_t parameters);

// Data, rows and epochs, and schedule, one line each.
std::vector<std::string> schedule_lines(const TrainingConfig& config, const Streams& streams,
                                        const DataIdentity& data, const DataIdentity& validation);

// "2 slices of 64 rows, in 1 pass each"
std::string slices_line(const TrainingConfig& config);

// "memory estimated: 640 MiB (107 MiB for weights and optimizer, ...)"
std::string memory_line(const MemoryEstimate& memory);

}  // namespace ql::train
