#include "nn/pooling_internal.h"

#include <stdexcept>

namespace ql::nn {

at::Tensor compress(const at::Tensor& window, net::Pool pool, std::int64_t rate,
                    std::int64_t count) {
  const std::int64_t covered = count * rate;
  const at::Tensor groups =
      window.narrow(1, window.size(1) - covered, covered).unflatten(1, {count, rate});
  switch (pool) {
    case net::Pool::kMax:
      return groups.amax(2);
    case net::Pool::kMean:
      return groups.mean(2);
    case net::Pool::kConvolution:
    case net::Pool::kDilatedConvolution:
    case net::Pool::kMostUsed:
      break;
  }
  throw std::logic_error("not a compression of scales");
}

}  // namespace ql::nn
