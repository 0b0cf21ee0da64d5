// Compares small products, and the vectors beneath them, with triple loops, in every version that
// this processor runs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/small_product.h"
#include "kernels/vector.h"
#include "unit/torch_doctest.h"

namespace ql::kernels {
namespace {

// These run the bodies for the widest registers with narrower ones, for processors without AVX-512.
QL_VECTOR_VERSIONS(wide_multiply, multiply_body<64>, multiply_body<64>, multiply_body<64>)
QL_VECTOR_VERSIONS(wide_pack_rows, pack_rows_body<64>, pack_rows_body<64>, pack_rows_body<64>)
QL_VECTOR_VERSIONS(wide_pack_columns, pack_columns_body<64>, pack_columns_body<64>,
                   pack_columns_body<64>)

struct Version {
  machine::VectorVersion version;
  bool wide;

  template <typename Real>
  void multiply(const SmallProduct<Real>& product) const {
    wide ? wide_multiply_in(version, &product) : multiply_in(version, &product);
  }
  template <typename Real>
  void pack_rows(const Packing<Real>& packing) const {
    wide ? wide_pack_rows_in(version, &packing) : pack_rows_in(version, &packing);
  }
  template <typename Real>
  void pack_columns(const Packing<Real>& packing) const {
    wide ? wide_pack_columns_in(version, &packing) : pack_columns_in(version, &packing);
  }
};

std::vector<Version> versions() {
  std::vector<Version> found;
  for (const auto version : {machine::VectorVersion::kPortable, machine::VectorVersion::kAvx2,
                             machine::VectorVersion::kAvx512}) {
    if (machine::has_vector_version(version)) {
      found.push_back({version, false});
      found.push_back({version, true});
    }
  }
  return found;
}

class Random {
 public:
  std::int64_t below(std::int64_t end) { return static_cast<std::int64_t>(generator_() % end); }
  template <typename Real>
  std::vector<Real> numbers(std::int64_t count) {
    std::vector<Real> result(static_cast<std::size_t>(count));
    for (Real& number : result) number = static_cast<Real>(below(2001) - 1000) / 1000;
    return result;
  }

 private:
  std::mt19937_64 generator_{1};
};

template <typename Real>
std::vector<const Real*> rows_of(const std::vector<Real>& matrix, std::int64_t rows,
                                 std::int64_t stride) {
  std::vector<const Real*> result;
  for (std::int64_t row = 0; row < rows; ++row) result.push_back(matrix.data() + row * stride);
  return result;
}

template <typename Real>
void check_packing(const Version& version, Random& random) {
  constexpr std::int64_t kPanel = kernels::kPanel<Real>;
  const std::int64_t count = 1 + random.below(40), width = 1 + random.below(70);
  const std::int64_t offset = random.below(3), stride = offset + width;
  const std::vector<Real> matrix = random.numbers<Real>(count * stride);
  const std::vector<Real> bias = random.numbers<Real>(width);
  const std::vector<const Real*> rows = rows_of(matrix, count, stride);
  for (const bool with_bias : {false, true}) {
    std::vector<Real> panels(static_cast<std::size_t>(count * kernels::padded<Real>(width)), 9);
    Packing<Real> packing;
    packing.rows = rows.data();
    packing.count = count;
    packing.offset = offset;
    packing.width = width;
    packing.bias = with_bias ? bias.data() : nullptr;
    packing.to = panels.data();
    version.pack_rows(packing);
    bool same = true;
    for (std::int64_t k = 0; k < count; ++k) {
      for (std::int64_t n = 0; n < kernels::padded<Real>(width); ++n) {
        const Real number = n < width ? rows[k][offset + n] + (with_bias ? bias[n] : 0) : 0;
        same = same && panels[(n / kPanel * count + k) * kPanel + n % kPanel] == number;
      }
    }
    CHECK(same);
  }
  std::vector<Real> panels(static_cast<std::size_t>(kernels::padded<Real>(count) * width), 9);
  Packing<Real> packing;
  packing.rows = rows.data();
  packing.count = count;
  packing.offset = offset;
  packing.width = width;
  packing.to = panels.data();
  version.pack_columns(packing);
  bool same = true;
  for (std::int64_t k = 0; k < width; ++k) {
    for (std::int64_t n = 0; n < kernels::padded<Real>(count); ++n) {
      const Real number = n < count ? rows[n][offset + k] : 0;
      same = same && panels[(n / kPanel * width + k) * kPanel + n % kPanel] == number;
    }
  }
  CHECK(same);
}

// Returns a band as in attention: rising, falling or everything.
Band random_band(Random& random, std::int64_t size) {
  if (random.below(3) == 0) return Band::all(size);
  const std::int64_t slope = random.below(2) == 0 ? 1 : -1;
  const std::int64_t low = random.below(2 * size) - size;
  return {low, low + 1 + random.below(2 * size), slope, random.below(size), size};
}

bool within(const Band& band, std::int64_t row, std::int64_t index) {
  return index >= band.low + band.slope * row && index < band.high + band.slope * row &&
         index >= band.least && index < band.most;
}

template <typename Real>
void check_product(const Version& version, Random& random) {
  constexpr std::int64_t kPanel = kernels::kPanel<Real>;
  const std::int64_t rows = 1 + random.below(40), columns = 1 + random.below(60);
  const std::int64_t inner = 1 + random.below(50);
  const bool transposed = random.below(2) == 0, add = random.below(2) == 0;
  const bool padded = random.below(2) == 0;
  const Band column_band = random_band(random, columns);
  const Band inner_band = random_band(random, inner);

  SmallProduct<Real> product;
  product.rows = rows;
  product.columns = columns;
  product.inner = inner;
  product.a_row = transposed ? 1 : inner + 3;
  product.a_inner = transposed ? rows + 2 : 1;
  std::vector<Real> a = random.numbers<Real>((rows + 3) * (inner + 3));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < inner; ++k) {
      if (!within(inner_band, i, k)) a[i * product.a_row + k * product.a_inner] = 0;
    }
  }
  product.a = a.data();
  const bool in_place = random.below(2) == 0;
  const std::int64_t b_row = in_place ? kernels::padded<Real>(columns) : columns;
  const std::vector<Real> b = random.numbers<Real>(inner * b_row);
  const std::vector<const Real*> b_rows = rows_of(b, inner, b_row);
  std::vector<Real> panels(static_cast<std::size_t>(inner * kernels::padded<Real>(columns)));
  Packing<Real> packing;
  packing.rows = b_rows.data();
  packing.count = inner;
  packing.width = columns;
  packing.to = panels.data();
  version.pack_rows(packing);
  product.b = in_place ? Panels<Real>::in_place(b.data(), b_row)
                       : Panels<Real>::packed(panels.data(), inner);
  product.c_row = (padded ? kernels::padded<Real>(columns) : columns) + random.below(2);
  const std::vector<Real> before = random.numbers<Real>(rows * product.c_row);
  std::vector<Real> c = before;
  product.c = c.data();
  product.add = add;
  product.padded = padded;
  product.column_band = column_band;
  product.inner_band = inner_band;
  version.multiply(product);

  double largest = 0;
  bool untouched = true;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t n = 0; n < product.c_row; ++n) {
      const std::int64_t at = i * product.c_row + n;
      // C may hold anything where another row of the tile or another column of the panel has a
      // value; only elements that no panel covers must stay.
      if (n >= (padded ? kernels::padded<Real>(columns) : columns)) {
        untouched = untouched && c[at] == before[at];
      }
      if (n >= columns || !within(column_band, i, n)) continue;
      double sum = add ? before[at] : 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += static_cast<double>(a[i * product.a_row + k * product.a_inner]) * b[k * b_row + n];
      }
      largest = test::larger(largest, std::abs(sum - static_cast<double>(c[at])));
    }
  }
  CHECK(largest < 100 * static_cast<double>(std::numeric_limits<Real>::epsilon()));
  CHECK(untouched);
  static_assert(kPanel * sizeof(Real) == 64);
}

template <int kBytes, typename Real>
QL_VECTOR_BODY void exponentials_body(Real* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += Register<Real, kBytes>::kSize) {
    typename Register<Real, kBytes>::Vector x;
    load(numbers + i, x);
    exponentiate<kBytes>(x);
    store(x, numbers + i);
  }
}
QL_REGISTER_KERNEL(exponentials)

template <typename Real>
void check_exponentials(machine::VectorVersion version) {
  std::vector<Real> numbers, found;
  for (int i = 0; i < 16 * 600; ++i) {
    numbers.push_back(static_cast<Real>(-0.01) * static_cast<Real>(i));
  }
  numbers.front() = std::numeric_limits<Real>::lowest();
  found = numbers;
  exponentials_in(version, found.data(), static_cast<std::int64_t>(found.size()));
  double largest = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // float's stays where the result would be below the normal range.
    const double least = sizeof(Real) == 4 ? -87 : -800;
    const double expected = std::exp(std::max(least, static_cast<double>(numbers[i])));
    if (expected > 0) {
      largest = test::larger(largest, std::abs(static_cast<double>(found[i]) / expected - 1));
    }
  }
  CHECK(largest < 2 * static_cast<double>(std::numeric_limits<Real>::epsilon()));
}

}  // namespace

TEST_CASE("SmallProduct: equals the triple loop in every version") {
  for (const Version& version : versions()) {
    CAPTURE(static_cast<int>(version.version));
    CAPTURE(version.wide);
    Random random;
    for (int i = 0; i < 400; ++i) {
      check_product<float>(version, random);
      check_product<double>(version, random);
    }
  }
}

TEST_CASE("Packing: panels hold the matrix, transposed or with a bias, in every version") {
  for (const Version& version : versions()) {
    CAPTURE(static_cast<int>(version.version));
    CAPTURE(version.wide);
    Random random;
    for (int i = 0; i < 100; ++i) {
      check_packing<float>(version, random);
      check_packing<double>(version, random);
    }
  }
}

TEST_CASE("exponentiate: equals the standard library in every version") {
  for (const Version& version : versions()) {
    check_exponentials<float>(version.version);
    check_exponentials<double>(version.version);
  }
}

template <int kBytes>
QL_VECTOR_BODY int register_bytes_body(int /*unused*/) {
  return kBytes;
}
QL_REGISTER_KERNEL(register_bytes)

TEST_CASE("QL_REGISTER_KERNEL: a kernel runs in the version of the process" *
          doctest::test_suite("numeric")) {
  const machine::VectorVersion version = machine::vector_version();
  CHECK(register_bytes(0) == (version == machine::VectorVersion::kAvx512 ? 64
                              : version == machine::VectorVersion::kAvx2 ? 32
                                                                         : 16));
  const char* wanted = std::getenv(machine::kVectorVersionVariable);
  if (wanted != nullptr) CHECK(to_text(version) == wanted);
}

TEST_CASE("choose_vector_version: the requested version runs, else the widest") {
  CHECK(machine::has_vector_version(machine::VectorVersion::kPortable));
  const machine::VectorVersion widest = versions().back().version;
  CHECK(machine::choose_vector_version(nullptr) == widest);
  CHECK(machine::choose_vector_version("") == widest);
  const std::pair<const char*, machine::VectorVersion> names[] = {
      {"portable", machine::VectorVersion::kPortable},
      {"avx2", machine::VectorVersion::kAvx2},
      {"avx512", machine::VectorVersion::kAvx512}};
  for (const auto& [name, version] : names) {
    CAPTURE(name);
    if (machine::has_vector_version(version)) {
      CHECK(machine::choose_vector_version(name) == version);
    } else {
      CHECK_THROWS_AS(machine::choose_vector_version(name), UsageError);
    }
  }
  for (const char* unknown : {"AVX2", "avx2 ", "avx", "default"}) {
    CAPTURE(unknown);
    CHECK_THROWS_WITH_AS(machine::choose_vector_version(unknown),
                         doctest::Contains("QL_VECTOR_VERSION: '"), UsageError);
  }
  CHECK(machine::vector_version() ==
        machine::choose_vector_version(std::getenv(machine::kVectorVersionVariable)));
}

}  // namespace ql::kernels
