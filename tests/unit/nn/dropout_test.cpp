// Tests Philox, dropout and droppath: known answers, statistics, and independence of the number of
// threads.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/dropout_kernel.h"
#include "nn/dropout.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

at::Tensor mask(at::IntArrayRef shape, double rate, const nn::StepOptions& step,
                nn::DropoutSite site = {nn::DropoutSite::kInner},
                at::ScalarType type = at::kFloat) {
  return nn::dropout_mask(shape, rate, step, site, type);
}

void check_words(const kernels::PhiloxCounter& found, std::uint32_t a, std::uint32_t b,
                 std::uint32_t c, std::uint32_t d) {
  CHECK(found.word[0] == a);
  CHECK(found.word[1] == b);
  CHECK(found.word[2] == c);
  CHECK(found.word[3] == d);
}

}  // namespace

TEST_CASE("philox: gives the values that its authors publish") {
  check_words(kernels::philox({{0, 0, 0, 0}}, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  check_words(
      kernels::philox({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff),
      0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  check_words(
      kernels::philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST_CASE("dropout_mask: consists of Philox's words in their documented order") {
  const nn::StepOptions step{true, 77, (1ULL << 33) + 5};
  const at::Tensor factors = mask({1000}, 0.25, step, {nn::DropoutSite::kInner, 3});
  for (std::int64_t element = 0; element < 1000; ++element) {
    const std::int64_t group = element / 128, number = element % 128 / 16, call = element % 16;
    const kernels::PhiloxCounter words =
        kernels::philox({{static_cast<std::uint32_t>(group * 16 + call),
                          nn::DropoutSite{nn::DropoutSite::kInner, 3}.id(), 5, 2}},
                        77);
    const std::uint32_t bits = words.word[number / 2] >> (16 * (number % 2)) & 0xFFFF;
    CHECK(factors[element].item<float>() == (bits < 16384 ? 0.0F : 65536.0F / 49152));
  }
}

TEST_CASE("dropout: drops at its rate and keeps the mean") {
  constexpr std::int64_t kSize = 200000;
  for (const double rate : {0.1, 0.15, 0.5, 0.9}) {
    CAPTURE(rate);
    const at::Tensor factors = mask({kSize}, rate, {true, 5, 9});
    const auto zeros = static_cast<double>(factors.eq(0).sum().item<std::int64_t>());
    const double deviation = std::sqrt(kSize * rate * (1 - rate));
    CHECK(std::abs(zeros - kSize * rate) < 5 * deviation + 2);
    const at::Tensor kept = factors.masked_select(factors.ne(0));
    CHECK(kept.min().item<float>() == doctest::Approx(1 / (1 - rate)).epsilon(1e-4));
    CHECK(kept.max().item<float>() == kept.min().item<float>());
  }
  CHECK(at::equal(mask({9}, 0, {true, 1, 1}), at::ones({9})));
}

TEST_CASE("dropout_mask: is a function of seed, step, site and element") {
  const at::Tensor base = mask({40000}, 0.5, {true, 1, 1}, {nn::DropoutSite::kInner, 2});
  CHECK(
      at::equal(base, mask({200, 200}, 0.5, {true, 1, 1}, {nn::DropoutSite::kInner, 2}).flatten()));
  CHECK(at::equal(base.to(at::kDouble),
                  mask({40000}, 0.5, {true, 1, 1}, {nn::DropoutSite::kInner, 2}, at::kDouble)));
  // A shorter mask is the beginning of a longer one, even if it ends inside a block.
  CHECK(at::equal(base.narrow(0, 0, 13),
                  mask({13}, 0.5, {true, 1, 1}, {nn::DropoutSite::kInner, 2})));
  const at::Tensor others[] = {
      mask({40000}, 0.5, {true, 2, 1}, {nn::DropoutSite::kInner, 2}),
      mask({40000}, 0.5, {true, 1ULL << 40, 1}, {nn::DropoutSite::kInner, 2}),
      mask({40000}, 0.5, {true, 1, 2}, {nn::DropoutSite::kInner, 2}),
      mask({40000}, 0.5, {true, 1, (1ULL << 40) + 1}, {nn::DropoutSite::kInner, 2}),
      mask({40000}, 0.5, {true, 1, 1}, {nn::DropoutSite::kInner, 3}),
      mask({40000}, 0.5, {true, 1, 1}, {nn::DropoutSite::kFeedForward, 2}),
      base.roll(1)};
  for (const at::Tensor& other : others) {
    const double same = base.eq(other).to(at::kDouble).mean().item<double>();
    CHECK(same == doctest::Approx(0.5).epsilon(0.05));
  }
}

TEST_CASE("dropout_kept: keeps the elements that the mask does not drop") {
  for (const double rate : {0.0, 0.1, 0.5, 1.0}) {
    const nn::StepOptions step{true, 3, 8};
    const nn::DropoutSite site{nn::DropoutSite::kFinal, 1};
    const at::Tensor kept = nn::dropout_kept({3, 1001}, rate, step, site);
    CHECK((kept.scalar_type() == at::kByte));
    const at::Tensor factors = kept.to(at::kDouble) * nn::dropout_factor(rate);
    CHECK(at::equal(factors, mask({3, 1001}, rate, step, site, at::kDouble)));
  }
  CHECK(nn::dropout_factor(0) == 1);
  CHECK(nn::dropout_factor(0.25) == 65536.0 / 49152);
  CHECK(nn::dropout_factor(1) == 65536);  // the last level is never dropped
}

TEST_CASE("dropout_mask: a micro-batch gets its rows of the complete batch's mask") {
  // Some rows are shorter and some longer than a group and a thread's part, and most widths are
  // multiples of neither.
  for (const std::int64_t width : {1, 7, 127, 128, 333, 8193}) {
    constexpr std::int64_t kRows = 11;
    nn::StepOptions step{true, 5, 6};
    const nn::DropoutSite site{nn::DropoutSite::kInner, 1};
    const at::Tensor whole = mask({kRows, width}, 0.4, step, site);
    const at::Tensor kept = nn::dropout_kept({kRows, width}, 0.4, step, site);
    for (const auto& [first, end] : {std::pair{0, 11}, {0, 4}, {3, 4}, {1, 10}, {7, 11}, {5, 5}}) {
      CAPTURE(width);
      CAPTURE(first);
      step.first_row = first;
      const std::int64_t rows = end - first;
      CHECK(at::equal(mask({rows, width}, 0.4, step, site), whole.narrow(0, first, rows)));
      CHECK(
          at::equal(nn::dropout_kept({rows, width}, 0.4, step, site), kept.narrow(0, first, rows)));
      const at::Tensor states = at::randn({rows, width});
      CHECK(at::equal(nn::dropout(states, 0.4, step, site), states * whole.narrow(0, first, rows)));
    }
  }
}

TEST_CASE("dropout_of_shared: gives the same mask in every micro-batch") {
  nn::StepOptions step{true, 5, 6};
  const at::Tensor table = at::randn({9, 31});
  const at::Tensor whole = nn::dropout_of_shared(table, 0.4, step, {nn::DropoutSite::kPosition});
  const std::int64_t scale = nn::droppath_first_scale(3, 0.9, step);
  step.first_row = 4;
  CHECK(at::equal(nn::dropout_of_shared(table, 0.4, step, {nn::DropoutSite::kPosition}), whole));
  CHECK(!at::equal(nn::dropout(table, 0.4, step, {nn::DropoutSite::kPosition}), whole));
  CHECK(nn::droppath_first_scale(3, 0.9, step) == scale);
}

TEST_CASE("fill_kept: every vector version keeps the same elements") {
  const kernels::DropoutStream stream{0x123456789ABCDEF0ULL, (5ULL << 32) + 0x90ABCDEF, 0x80000007};
  for (const auto version : {machine::VectorVersion::kAvx2, machine::VectorVersion::kAvx512}) {
    for (const std::uint32_t dropped : {0U, 1U, 6554U, 32768U, 40000U, 65535U}) {
      if (!machine::has_vector_version(version)) continue;
      // The last range ends at the largest element, 2^35.
      for (const std::int64_t first :
           {std::int64_t{0}, std::int64_t{77}, (std::int64_t{1} << 35) - 1000}) {
        std::vector<std::uint8_t> expected(1000), found(1000);
        kernels::fill_kept(expected.data(), first, 1000, stream, dropped,
                           machine::VectorVersion::kPortable);
        kernels::fill_kept(found.data(), first, 1000, stream, dropped, version);
        CHECK(expected == found);
      }
    }
  }
}

TEST_CASE("dropout_mask: does not depend on the number of threads") {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = mask({123457}, 0.3, {true, 3, 4});
  at::set_num_threads(3);
  const at::Tensor three = mask({123457}, 0.3, {true, 3, 4});
  at::set_num_threads(threads);
  CHECK(at::equal(one, three));
}

TEST_CASE("dropout: changes nothing outside of training") {
  const at::Tensor states = at::randn({3, 4});
  CHECK(nn::dropout(states, 0.5, {}, {nn::DropoutSite::kFinal}).is_same(states));
  CHECK(nn::dropout(states, 0, {true, 1, 1}, {nn::DropoutSite::kFinal}).is_same(states));
  CHECK(!at::equal(nn::dropout(states, 0.5, {true, 1, 1}, {nn::DropoutSite::kFinal}), states));
}

TEST_CASE("droppath_first_scale: drops the scales below j with probability p / (S - 1) each") {
  constexpr std::uint64_t kSteps = 40000;
  constexpr double kRate = 0.3;
  for (const std::int64_t scales : {2, 3, 5}) {
    std::vector<double> counts(static_cast<std::size_t>(scales), 0.0);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const std::int64_t first = nn::droppath_first_scale(scales, kRate, {true, 8, step});
      REQUIRE((first >= 0 && first < scales));
      ++counts[static_cast<std::size_t>(first)];
    }
    CHECK(counts[0] / kSteps == doctest::Approx(1 - kRate).epsilon(0.03));
    for (std::size_t j = 1; j < counts.size(); ++j) {
      CHECK(counts[j] / kSteps ==
            doctest::Approx(kRate / static_cast<double>(scales - 1)).epsilon(0.1));
    }
  }
  CHECK(nn::droppath_first_scale(3, 0.9, {false, 8, 1}) == 0);
  CHECK(nn::droppath_first_scale(3, 0, {true, 8, 1}) == 0);
  CHECK(nn::droppath_first_scale(1, 0.9, {true, 8, 1}) == 0);
}

TEST_CASE("seed_generator: a device's generator follows seed, step and first row") {
  const auto draw = [](std::uint64_t seed, std::uint64_t number, std::int64_t first_row) {
    nn::StepOptions step{true, seed, number};
    step.first_row = first_row;
    nn::seed_generator(at::kCPU, step);
    return at::rand({16});
  };
  const at::Tensor drawn = draw(5, 7, 0);
  CHECK(at::equal(drawn, draw(5, 7, 0)));
  const std::uint64_t high = std::uint64_t{1} << 40;
  for (const at::Tensor& other :
       {draw(6, 7, 0), draw(high + 5, 7, 0), draw(5, 8, 0), draw(5, high + 7, 0), draw(5, 7, 2)}) {
    CHECK_FALSE(at::equal(drawn, other));
  }
}

}  // namespace ql
