#include "nn/pooling_internal.h"

#include <stdexcept>

namespace ql::nn {

at::Tensor compress(const at::Tensor& states, net::Pool pool, std::int64_t rate) {
  const at::Tensor groups = states.unflatten(1, {states.size(1) / rate, rate});
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
