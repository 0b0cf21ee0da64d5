// Applies the sampling rules to the logits for the next token, and draws the token.

#include "generate/sampling.h"

#include <numeric>

#include "kernels/philox.h"
#include "kernels/vector.h"

namespace ql::generate {
namespace {

// Sets scores[i] to e^(factor (scores[i] - largest)), or to 0 if this power is below e^-87.
template <typename Number>
QL_VECTOR_BODY void weigh_body(Number* scores, std::int64_t count, Number largest, Number factor) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Number power = (scores[i] - largest) * factor;
    scores[i] = power < Number(-87) ? Number(0) : kernels::exponential(power);
  }
}
QL_VECTOR_KERNEL(weigh)

}  // namespace

void RecentTokens::put(shard::TokenId id) {
  if (window_ == 0) {
    counts_[id] = 1;
    return;
  }
  ++counts_[id];
  order_.push_back(id);
  if (order_.size() > window_) {
    --counts_[order_.front()];
    order_.pop_front();
  }
}

shard::TokenId Sampler::choose(const float* logits, std::int64_t count, const RecentTokens& recent,
                               double uniform) {
  weights_.assign(logits, logits + count);
  if (rules_.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(rules_.repetition_penalty);
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      float& logit = weights_[id];
      if (recent.has(static_cast<shard::TokenId>(id))) {
        logit = logit > 0 ? logit / penalty : logit * penalty;
      }
    }
  }
  for (const shard::TokenId id : rules_.without) {
    weights_[id] = -std::numeric_limits<float>::infinity();
  }
  const auto largest = std::max_element(weights_.begin(), weights_.end());
  const auto likeliest = static_cast<shard::TokenId>(largest - weights_.begin());
  if (rules_.temperature == 0) return likeliest;
  // With an infinite factor the largest logit, whose power is 0, would get the weight NaN.
  const double factor = std::min(1 / rules_.temperature, double{std::numeric_limits<float>::max()});
  weigh(weights_.data(), count, *largest, static_cast<float>(factor));
  const bool filters = rules_.top_k > 0 || rules_.top_p < 1 || rules_.min_p > 0;
  if (filters) keep_likeliest();
  const auto draw = [&](std::size_t among, const auto& id_at) {
    double sum = 0;
    for (std::size_t i = 0; i < among; ++i) sum += weights_[id_at(i)];
    double left = uniform * sum;
    for (std::size_t i = 0; i < among; ++i) {
      left -= weights_[id_at(i)];
      if (left < 0) return static_cast<shard::TokenId>(id_at(i));
    }
    // Because of rounding, `left` can remain at or above 0.
    return likeliest;
  };
  return filters ? draw(kept_.size(), [this](std::size_t i) { return kept_[i]; })
                 : draw(weights_.size(), [](std::size_t i) { return i; });
}

void Sampler::keep_likeliest() {
  kept_.resize(weights_.size());
  std::iota(kept_.begin(), kept_.end(), shard::TokenId{0});
  const auto likelier = [this](shard::TokenId one, shard::TokenId other) {
    return weights_[one] != weights_[other] ? weights_[one] > weights_[other] : one < other;
  };
  const auto most = static_cast<std::size_t>(rules_.top_k);
  if (most > 0 && most < kept_.size()) {
    std::nth_element(kept_.begin(), kept_.begin() + rules_.top_k, kept_.end(), likelier);
    kept_.resize(most);
  }
  if (rules_.top_p < 1) {
    double sum = 0;
    for (const shard::TokenId id : kept_) sum += weights_[id];
    double together = 0;
    std::size_t count = 0;
    std::size_t sorted = 0;
    do {
      // A few tokens are usually enough, so the tokens are sorted piece by piece, the likeliest
      // first.
      if (count == sorted) {
        sorted = std::min(kept_.size(), 2 * sorted + 64);
        std::partial_sort(kept_.begin() + static_cast<std::ptrdiff_t>(count),
                          kept_.begin() + static_cast<std::ptrdiff_t>(sorted), kept_.end(),
                          likelier);
      }
      together += weights_[kept_[count++]];
    } while (count < kept_.size() && together < rules_.top_p * sum);
    kept_.resize(count);
  }
  if (rules_.min_p > 0) {
    const auto unlikely = [this](shard::TokenId id) { return weights_[id] < rules_.min_p; };
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), unlikely), kept_.end());
  }
  // Sorting by id makes the order independent of the standard library.
  std::sort(kept_.begin(), kept_.end());
}

double uniform_number(std::uint64_t seed, std::uint64_t sample, std::uint64_t position) {
  const kernels::PhiloxCounter words = kernels::philox(
      {{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
        static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)}},
      seed);
  const std::uint64_t bits = (std::uint64_t{words.word[0]} << 21) ^ (words.word[1] >> 11);
  return static_cast<double>(bits & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

}  // namespace ql::generate
