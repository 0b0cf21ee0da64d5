// Compares products of matrices, and of operands rounded to bfloat16, with the same in float64.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/product.h"
#include "machine/device.h"
#include "machine/onednn.h"
#include "machine/threads.h"
#include "unit/float32_error.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"

namespace ql::test {
namespace {

using kernels::product;
using kernels::rounded_product;
using kernels::set_product;
using kernels::to_operand;

// Returns the same elements with contiguous columns, and as a part of a larger matrix.
std::vector<at::Tensor> layouts(const at::Tensor& matrix) {
  at::Tensor wide = at::zeros({matrix.size(0) + 1, matrix.size(1) + 3}, matrix.options());
  at::Tensor part = wide.narrow(0, 1, matrix.size(0)).narrow(1, 2, matrix.size(1));
  part.copy_(matrix);
  return {matrix, matrix.t().contiguous().t(), part, part.t().contiguous().t()};
}

// Returns the largest error of a sum of n products of floats, each rounded once.
at::Tensor bound(const at::Tensor& a, const at::Tensor& b) {
  const double unit = std::numeric_limits<float>::epsilon() * static_cast<double>(a.size(1) + 2);
  return at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs()) * unit + 1e-30;
}

at::Tensor in_bfloat16(const at::Tensor& matrix) {
  return to_operand(matrix, at::empty({1, 1}, at::kBFloat16));
}

bool is_product(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  return (result.scalar_type() == at::kFloat) &&
         ((result.to(at::kDouble) - exact).abs() <= bound(a, b)).all().item<bool>();
}

bool is_rounded_product(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  // Half of the distance between two values of bfloat16 is at most 1/256 of the value.
  return (result.scalar_type() == at::kBFloat16) &&
         ((result.to(at::kDouble) - exact).abs() <= bound(a, b) + exact.abs() / 256)
             .all()
             .item<bool>();
}

}  // namespace

TEST_CASE("to_operand: an operand has the values that LibTorch rounds to" *
          doctest::test_suite("numeric")) {
  at::manual_seed(1);
  // The values have all exponents and signs, and are halfway cases and NaN, too.
  at::Tensor bits = at::randint(std::numeric_limits<std::int32_t>::min(),
                                std::numeric_limits<std::int32_t>::max(), {1000, 1003}, at::kLong)
                        .to(at::kInt);
  bits.select(0, 0).bitwise_and_(-32768);
  bits[1][0] = 0x7F800000;
  bits[1][1] = 0x7F7FFFFF;
  bits[1][2] = 0x7F800001;
  bits[1][3] = 1;
  const at::Tensor numbers = at::from_blob(bits.data_ptr(), bits.sizes(), at::kFloat);
  const at::Tensor factor = in_bfloat16(numbers), expected = numbers.to(at::kBFloat16);
  REQUIRE((factor.scalar_type() == at::kBFloat16));
  CHECK(at::equal(factor.isnan(), numbers.isnan()));
  CHECK(factor.isnan().any().item<bool>());
  CHECK(at::equal(at::nan_to_num(factor.to(at::kFloat)), at::nan_to_num(expected.to(at::kFloat))));
  // The precision of float64, and beside an operand of float32, does not change.
  CHECK((to_operand(numbers.to(at::kDouble), factor).scalar_type() == at::kDouble));
  CHECK(to_operand(numbers, numbers).is_same(numbers));
}

TEST_CASE("product: sums of rounded operands are float32" * doctest::test_suite("numeric")) {
  at::manual_seed(2);
  for (const std::int64_t rows : {1, 3, 64, 257, 600}) {
    for (const std::int64_t inner : {1, 17, 128}) {
      for (const std::int64_t columns : {1, 31, 96}) {
        CAPTURE(rows);
        CAPTURE(inner);
        CAPTURE(columns);
        const at::Tensor a = at::randn({rows, inner}), b = at::randn({inner, columns});
        const at::Tensor rounded_a = a.to(at::kBFloat16), rounded_b = b.to(at::kBFloat16);
        for (const at::Tensor& of_a : layouts(a)) {
          for (const at::Tensor& of_b : layouts(b)) {
            const at::Tensor found = product(in_bfloat16(of_a), in_bfloat16(of_b));
            CHECK(is_product(found, rounded_a, rounded_b));
            CHECK(is_rounded_product(rounded_product(in_bfloat16(of_a), in_bfloat16(of_b)),
                                     rounded_a, rounded_b));
            CHECK(is_product(rounded_product(of_a, of_b), a, b));
          }
        }
        const at::Tensor bias = at::randn({columns});
        const at::Tensor with_one = at::cat({rounded_a.to(at::kFloat), at::ones({rows, 1})}, 1);
        const at::Tensor with_bias = at::cat({rounded_b.to(at::kFloat), bias.unsqueeze(0)}, 0);
        CHECK(is_product(product(in_bfloat16(a), in_bfloat16(b), bias), with_one, with_bias));
        CHECK(is_rounded_product(rounded_product(a, in_bfloat16(b), bias), with_one, with_bias));
        at::Tensor wide = at::ones({rows, columns + 5});
        at::Tensor part = wide.narrow(1, 2, columns);
        set_product(part, in_bfloat16(a), in_bfloat16(b), /*add=*/true);
        CHECK(is_product(part, at::cat({rounded_a.to(at::kFloat), at::ones({rows, 1})}, 1),
                         at::cat({rounded_b.to(at::kFloat), at::ones({1, columns})}, 0)));
        set_product(part, in_bfloat16(a), in_bfloat16(b));
        CHECK(is_product(part, rounded_a, rounded_b));
        CHECK(wide.narrow(1, 0, 2).eq(1).all().item<bool>());
        CHECK(wide.narrow(1, columns + 2, 3).eq(1).all().item<bool>());
      }
    }
  }
}

TEST_CASE("product: products in a piece are those of float64, of few rows or many, in any layout" *
          doctest::test_suite("numeric")) {
  at::manual_seed(4);
  for (const std::int64_t rows : {1, 4, 5, 63, 64, 65}) {
    for (const std::int64_t width : {1, 16, 37, 256}) {
      for (const std::int64_t columns : {1, 3, 40}) {
        CAPTURE(rows);
        CAPTURE(width);
        CAPTURE(columns);
        const at::Tensor states = at::randn({rows, width}), weight = at::randn({width, columns});
        const at::Tensor bias = at::randn({columns});
        const at::Tensor with_bias = at::cat({states, at::ones({rows, 1})}, 1);
        const at::Tensor and_bias = at::cat({weight, bias.unsqueeze(0)});
        for (const at::Tensor& a : layouts(states)) {
          for (const at::Tensor& b : layouts(weight)) {
            at::Tensor around = at::full({rows, columns + 4}, 7.0F);
            at::Tensor result = around.narrow(1, 1, columns), sum = at::full({rows, columns}, 2.0F);
            const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
            at::Tensor biased, wide;
            machine::for_pieces(1, 1, [&](std::int64_t, std::int64_t) {
              const at::NoGradGuard no_gradient;
              wide = product(wide_a, wide_b);
              set_product(result, a, b);
              biased = product(a, b, bias);
              set_product(sum, a, b, /*add=*/true);
            });
            CHECK(is_product(result, a, b));
            CHECK(is_product(biased, with_bias, and_bias));
            CHECK(largest_difference(wide, at::mm(wide_a, wide_b)) < 1e-11);
            CHECK(largest_difference(sum, result + 2) < 1e-4);
            CHECK(at::cat({around.narrow(1, 0, 1), around.narrow(1, columns + 1, 3)}, 1)
                      .eq(7)
                      .all()
                      .item<bool>());
          }
        }
      }
    }
  }
}

TEST_CASE("product: rounded operands give the same bits for any number of threads" *
          doctest::test_suite("numeric")) {
  at::manual_seed(3);
  const at::Tensor a = at::randn({700, 90}), b = at::randn({90, 130});
  const auto by_threads = [&](int threads) {
    const WithThreads with_threads(threads);
    return product(in_bfloat16(a), in_bfloat16(b));
  };
  const at::Tensor by_one = by_threads(1);
  CHECK(at::equal(by_threads(2), by_one));
  CHECK(at::equal(by_threads(3), by_one));
  const auto rounded_by_threads = [&](int threads) {
    const WithThreads with_threads(threads);
    return rounded_product(a, in_bfloat16(b));
  };
  const at::Tensor rounded_by_one = rounded_by_threads(1);
  CHECK(at::equal(rounded_by_threads(2), rounded_by_one));
  CHECK(at::equal(rounded_by_threads(3), rounded_by_one));
  const WithThreads three(3);
  std::vector<at::Tensor> parts(3);
  machine::for_pieces(700, 256, [&](std::int64_t first, std::int64_t count) {
    parts[static_cast<std::size_t>(first / 256)] =
        product(in_bfloat16(a.narrow(0, first, count)), in_bfloat16(b));
  });
  CHECK(at::equal(at::cat(parts), by_one));
}

TEST_CASE("rounded_product: rows are independent of each other where products must be") {
  at::manual_seed(5);
  const at::Tensor a = at::randn({30, 65}), b = in_bfloat16(at::randn({65, 50}));
  const kernels::BatchInvariant live;
  const at::Tensor all = rounded_product(a, b);
  CHECK(at::equal(all, product(a, b).to(at::kBFloat16)));
  CHECK(at::equal(rounded_product(a.narrow(0, 4, 1), b), all.narrow(0, 4, 1)));
}

#if defined(QL_ONEDNN)
// Every processor has oneDNN's products of float32, which are called in the same way.
TEST_CASE("multiply_by_onednn: multiplies matrices of any layout") {
  at::manual_seed(4);
  const WithThreads two(2);
  const bool native = machine::bfloat16_products() == machine::Bfloat16Products::kNative;
  const auto is_right = [](const at::Tensor& a, const at::Tensor& b, bool add, bool with_bias) {
    at::Tensor wide = at::ones({a.size(0), b.size(1) + 5});
    at::Tensor result = wide.narrow(1, 2, b.size(1));
    const at::Tensor bias = with_bias ? at::randn({b.size(1)}) : at::Tensor();
    machine::multiply_by_onednn(result, a, b, add, bias);
    const auto extended = [](const at::Tensor& of, const at::Tensor& more, std::int64_t side) {
      return at::cat({of.to(at::kFloat), more}, side);
    };
    // Products by 1 give the sums.
    at::Tensor added = at::zeros({2, b.size(1)});
    if (add) added[0].fill_(1);
    if (with_bias) added[1].copy_(bias);
    return is_product(result, extended(a, at::ones({a.size(0), 2}), 1), extended(b, added, 0)) &&
           wide.narrow(1, 0, 2).eq(1).all().item<bool>() &&
           wide.narrow(1, b.size(1) + 2, 3).eq(1).all().item<bool>();
  };
  const std::vector<std::vector<std::int64_t>> shapes = {{70, 45, 38}, {1, 45, 38}, {70, 1, 38},
                                                         {70, 45, 1},  {1, 1, 1},   {1, 7, 1}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    if (type == at::kBFloat16 && !native) continue;
    for (const std::vector<std::int64_t>& shape : shapes) {
      CAPTURE(shape[0]);
      CAPTURE(shape[1]);
      CAPTURE(shape[2]);
      const at::Tensor a = at::randn({shape[0], shape[1]}).to(type);
      const at::Tensor b = at::randn({shape[1], shape[2]}).to(type);
      for (const at::Tensor& of_a : layouts(a)) {
        for (const at::Tensor& of_b : layouts(b)) {
          std::vector<int> right(4, 0);
          machine::for_pieces(4, 1, [&](std::int64_t piece, std::int64_t) {
            right[static_cast<std::size_t>(piece)] =
                is_right(of_a, of_b, piece % 2 == 1, piece > 1);
          });
          CHECK(right == std::vector<int>(4, 1));
        }
      }
    }
  }
}
#endif

TEST_CASE("sum_over_first: is the sum, with the same bits for any number of threads" *
          doctest::test_suite("numeric")) {
  at::manual_seed(5);
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{
           {1, 3}, {400, 300}, {16, 2, 1000, 3}, {128, 320}, {0, 4}}) {
    const at::Tensor tensor = at::randn(shape, at::kDouble), few_digits = tensor.to(at::kFloat);
    const auto by_threads = [&](int threads) {
      const WithThreads with_threads(threads);
      return kernels::sum_over_first(few_digits);
    };
    CHECK(at::equal(by_threads(3), by_threads(1)));
    CHECK(at::allclose(kernels::sum_over_first(tensor), tensor.sum(0), 1e-12, 1e-12));
    CHECK(kernels::sum_over_first(tensor).sizes() == tensor.sizes().slice(1));
  }
}

TEST_CASE("choose_bfloat16_products: the environment decides how bfloat16 is multiplied") {
  using machine::Bfloat16Products;
  CHECK((machine::choose_bfloat16_products("emulated") == Bfloat16Products::kEmulated));
  CHECK((machine::choose_bfloat16_products(nullptr) != Bfloat16Products::kEmulated));
  CHECK((machine::choose_bfloat16_products("") == machine::choose_bfloat16_products(nullptr)));
  CHECK_THROWS_WITH_AS(machine::choose_bfloat16_products("yes"),
                       "QL_BFLOAT16: expected 'emulated', found 'yes'; set it to emulated, "
                       "or leave it unset",
                       UsageError);
}

}  // namespace ql::test
