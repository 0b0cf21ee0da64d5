// Divides a vocabulary for adaptive input and adaptive softmax (Grave et al. 2017; Baevski and Auli
// 2019), in the convention of the public PyTorch Transformer-XL: frequent ids come first, and
// embeddings of later clusters are narrower by `div_val` each.
#pragma once

#include <cstdint>
#include <vector>

#include "net/network.h"

namespace ql::net {

struct Cluster {
  std::int64_t begin = 0, end = 0;  // ids
  std::int64_t width = 0;           // of the embeddings
  bool projected = false;           // between embeddings and d_model
  bool tied_projection = false;     // the softmax projects with the embedding's matrix

  std::int64_t size() const { return end - begin; }
};

// One cluster for a network without cutoffs. The network has passed check() and knows its
// vocab_size.
std::vector<Cluster> clusters(const Network& network);

// With div_val 1 all clusters share one embedding table and one projection of it.
inline bool shares_embedding(const Network& network) { return network.div_val == 1; }

}  // namespace ql::net
