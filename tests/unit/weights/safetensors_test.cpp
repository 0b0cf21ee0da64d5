// Tests the safetensors reader with hostile, damaged and cut files, one rule after the other, and
// checks that written tensors are read back unchanged.
#include "weights/safetensors.h"

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "unit/damage.h"
#include "unit/nn_support.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"

namespace ql::weights {
namespace {

// Returns a file of the header `json` and `size` bytes of tensors.
std::string make_file(const std::string& json, std::size_t size) {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return file + json + std::string(size, '\x01');
}

TensorFile read(const std::string& bytes) {
  const test::ScratchFolder folder;
  test::spill(folder / "x.safetensors", bytes);
  return read_safetensors(folder / "x.safetensors");
}

void check_refused(const std::string& bytes, const std::string& reason) {
  CAPTURE(reason);
  CHECK_THROWS_WITH_AS(read(bytes), doctest::Contains(reason.c_str()), FormatError);
  CHECK_THROWS_WITH_AS(read(bytes), doctest::Contains("x.safetensors"), FormatError);
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kGood = R"({"a":)" + entry("F32", "[2,3]", "[0,24]") + "}";

std::vector<nn::NamedTensor> tensors_of_all_types() {
  std::vector<nn::NamedTensor> tensors;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                    at::kInt, at::kByte, at::kBool}) {
    tensors.push_back({std::string("of ") + at::toString(type),
                       at::arange(0, 6, at::kDouble).remainder(4).view({2, 3}).to(type)});
  }
  tensors.push_back({"empty", at::zeros({0}, at::kFloat)});
  tensors.push_back({"empty in the middle", at::zeros({2, 0, 3}, at::kInt)});
  tensors.push_back({"scalar", at::full({}, 2.5, at::kDouble)});
  tensors.push_back({"strided", at::arange(12, at::kFloat).view({3, 4}).t()});
  tensors.push_back({"na\"me \xc3\xa9\n", at::ones({1}, at::kFloat)});
  return tensors;
}

}  // namespace

TEST_CASE("write_safetensors: written tensors are read back unchanged") {
  const test::ScratchFolder folder;
  const std::vector<nn::NamedTensor> tensors = tensors_of_all_types();
  const std::map<std::string, std::string> metadata = {{"step", "12"}, {"quote\"", "\\"}};
  write_safetensors(folder / "all", tensors, metadata);
  const TensorFile file = read_safetensors(folder / "all");
  CHECK(file.metadata == metadata);
  CHECK(file.where == (folder / "all").string());
  // Empty tensors may change places with those that begin at the same offset.
  REQUIRE(file.tensors.size() == tensors.size());
  for (const nn::NamedTensor& tensor : tensors) {
    CAPTURE(tensor.name);
    REQUIRE(file.has(tensor.name));
    const at::Tensor& found = file.at(tensor.name);
    CHECK((found.scalar_type() == tensor.tensor.scalar_type()));
    CHECK(found.is_contiguous());
    CHECK(at::equal(found, tensor.tensor));
  }
  CHECK(!file.has("missing"));
  CHECK_THROWS_WITH_AS(file.at("missing"), doctest::Contains("'missing'"), FormatError);
  // The tensors begin at a multiple of 8 bytes.
  const std::string bytes = test::slurp(folder / "all");
  CHECK(static_cast<unsigned char>(bytes[0]) % 8 == 0);

  write_safetensors(folder / "none", {}, {});
  CHECK(read_safetensors(folder / "none").tensors.empty());
}

TEST_CASE("read_safetensors: reads into tensors of the same name, dtype and shape") {
  const test::ScratchFolder folder;
  const at::Tensor numbers = at::arange(6, at::kFloat).view({2, 3});
  write_safetensors(folder / "x", {{"a", numbers}, {"b", numbers}, {"c", numbers}, {"d", numbers}},
                    {});
  const at::Tensor all = at::zeros({8}, at::kFloat);
  const at::Tensor same = all.narrow(0, 1, 6).view({2, 3});
  const at::Tensor other_shape = at::zeros({3, 2}, at::kFloat);
  const at::Tensor other_type = at::zeros({2, 3}, at::kDouble);
  const at::Tensor strided = at::zeros({3, 2}, at::kFloat).t();
  const TensorFile file = read_safetensors(
      folder / "x", {{"a", same}, {"b", other_shape}, {"c", other_type}, {"d", strided}});
  for (const nn::NamedTensor& tensor : file.tensors) CHECK(at::equal(tensor.tensor, numbers));
  CHECK(file.at("a").data_ptr() == same.data_ptr());
  CHECK(all[0].item<float>() == 0);
  CHECK(all[7].item<float>() == 0);
  for (const at::Tensor& untouched : {other_shape, other_type, strided}) {
    CHECK(untouched.count_nonzero().item<std::int64_t>() == 0);
  }
}

TEST_CASE("write_safetensors: refuses what cannot be read back") {
  const test::ScratchFolder folder;
  const at::Tensor one = at::ones({1});
  CHECK_THROWS_AS(write_safetensors(folder / "x", {{"a", one}, {"a", one}}, {}), Error);
  CHECK_THROWS_AS(write_safetensors(folder / "x", {{"__metadata__", one}}, {}), Error);
  CHECK_THROWS_AS(write_safetensors(folder / "x", {{"a", one.to(at::kShort)}}, {}), Error);
  CHECK(folder.entries() == 0);
}

TEST_CASE("read_safetensors: reads files of other programs") {
  const TensorFile file =
      read(make_file(R"({"__metadata__":{"format":"pt"},"late":)" + entry("U8", "[4]", "[24,28]") +
                         R"(,"early":)" + entry("F32", "[2,3]", "[0,24]") + "}   ",
                     28));
  CHECK(file.metadata.at("format") == "pt");
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "early");
  CHECK(file.tensors[1].tensor.sum().item<std::int64_t>() == 4);
}

TEST_CASE("read_safetensors: the header's length is checked") {
  check_refused("", "at least 8 bytes");
  check_refused("1234567", "at least 8 bytes");
  check_refused(std::string(8, '\0'), "'{'");
  check_refused(std::string(8, '\xff') + "{}", "above the limit");
  check_refused(make_file(kGood, 24).substr(0, 20), "bytes follow; if this is a safetensors file");
  std::string file = make_file(kGood, 24);
  file[3] = '\x05';  // 83,886,080 more
  check_refused(file, "bytes follow; if this is a safetensors file");
  file[3] = '\x06';
  check_refused(file, "above the limit");
}

TEST_CASE("read_safetensors: the header is strict JSON") {
  check_refused(make_file(" " + kGood, 24), "'{'");
  check_refused(make_file("[]", 0), "'{'");
  check_refused(make_file("{", 0), "header");
  check_refused(make_file(kGood + "x", 24), "header");
  check_refused(make_file(R"({"a":)" + entry("F32", "[1]", "[0,4]") + R"(,"a":)" +
                              entry("F32", "[1]", "[4,8]") + "}",
                          8),
                "a");
  check_refused(make_file(R"({"a":3})", 0), "a");
  check_refused(make_file("{\"\xff\":" + entry("U8", "[0]", "[0,0]") + "}", 0), "header");
}

TEST_CASE("read_safetensors: every tensor has a valid type, shape and offsets") {
  const auto refused = [](const std::string& description, const std::string& reason) {
    check_refused(make_file(R"({"name of it":)" + description + "}", 24), reason);
  };
  refused(entry("F8", "[2,3]", "[0,24]"), "'F8'");
  refused(R"({"shape":[2,3],"data_offsets":[0,24]})", "dtype");
  refused(R"({"dtype":"F32","data_offsets":[0,24]})", "shape");
  refused(R"({"dtype":"F32","shape":[2,3]})", "data_offsets");
  refused(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24],"more":1})", "more");
  refused(entry("F32", R"("2,3")", "[0,24]"), "shape");
  refused(entry("F32", "[2,3.0]", "[0,24]"), "shape");
  refused(entry("F32", "[2,-3]", "[0,24]"), "negative");
  refused(entry("F32", "[-2,-3]", "[0,24]"), "negative");
  refused(entry("F32", "[2,4]", "[0,24]"), "32 bytes");
  refused(entry("F64", "[2,3]", "[0,24]"), "48 bytes");
  refused(entry("F32", "[2,3]", "[0,24,24]"), "two data_offsets");
  refused(entry("F32", "[2,3]", "[24,0]"), "24 to 0");
  refused(entry("F32", "[2,3]", "[-24,0]"), "-24 to 0");
  refused(entry("F32", "[2,3]", "[9223372036854775807,-9223372036854775785]"), "do not decrease");
  refused(entry("F32", "[4294967296,4294967296]", "[0,0]"), "64 bits");
  refused(entry("F32", "[4611686018427387904]", "[0,0]"), "64 bits");
  refused(entry("F32", "[0,4611686018427387904,16]", "[0,0]"), "64 bits");
  refused(entry("F32", "[18446744073709551615]", "[0,24]"), "shape");
  refused(entry("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,6]", "[0,24]"), "dimensions");
}

TEST_CASE("read_safetensors: tensors are contiguous from the first byte to the last") {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + entry("U8", "[4]", a) + R"(,"b":)" + entry("U8", "[4]", b) + "}";
  };
  CHECK(read(make_file(two("[4,8]", "[0,4]"), 8)).tensors.size() == 2);
  check_refused(make_file(two("[0,4]", "[0,4]"), 8), "overlap");
  check_refused(make_file(two("[0,4]", "[2,6]"), 8), "overlap");
  check_refused(make_file(two("[0,4]", "[5,9]"), 9), "gap");
  check_refused(make_file(two("[1,5]", "[5,9]"), 9), "gap");
  check_refused(make_file(two("[0,4]", "[4,8]"), 7), "header is followed by 7");
  check_refused(make_file(two("[0,4]", "[4,8]"), 9), "header is followed by 9");
  check_refused(make_file("{}", 1), "header is followed by 1");
}

TEST_CASE("read_safetensors: metadata are texts, and BOOL is 0 or 1") {
  check_refused(make_file(R"({"__metadata__":{"a":1}})", 0), "a");
  check_refused(make_file(R"({"__metadata__":[]})", 0), "__metadata__");
  check_refused(make_file(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "a");
  std::string file = make_file(R"({"a":)" + entry("BOOL", "[2]", "[0,2]") + "}", 2);
  CHECK(read(file).at("a").all().item<bool>());
  file.back() = 2;
  check_refused(file, "BOOL");
}

TEST_CASE("read_safetensors: a file cut at any length is refused") {
  const test::ScratchFolder folder;
  write_safetensors(folder / "all", tensors_of_all_types(), {{"a", "b"}});
  const std::string bytes = test::slurp(folder / "all");
  for (const test::Damaged& cut : test::cuts(bytes)) {
    CAPTURE(cut.what);
    CHECK_THROWS_AS(read(cut.bytes), FormatError);
  }
}

// The format has no checksum: in files of other programs a flipped bit of a value goes unnoticed.
// The reader only guarantees that it returns no more than the file has.
TEST_CASE("read_safetensors: damage of any kind never makes it return more than the file has") {
  const test::ScratchFolder folder;
  write_safetensors(folder / "all", tensors_of_all_types(), {{"a", "b"}});
  const std::string bytes = test::slurp(folder / "all");
  for (const auto& [what, damaged] : test::Damages(bytes, 500)) {
    CAPTURE(what);
    try {
      std::size_t held = 0;
      for (const nn::NamedTensor& tensor : read(damaged).tensors) held += tensor.tensor.nbytes();
      CHECK(held < damaged.size());
    } catch (const FormatError&) {
      // The reader refused it, as it should.
    }
  }
}

TEST_CASE("read_safetensors: tensors and metadata are bounded, however many a header names") {
  const auto header_with = [](int tensors) {
    std::string json = R"({"__metadata__":{)";
    for (int i = 0; i < tensors; ++i) {
      json += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":"")";
    }
    json += "}";
    for (int i = 0; i < tensors - 1; ++i) {
      json += ",\"t" + std::to_string(i) + "\":" + entry("U8", "[0]", "[0,0]");
    }
    return json + "}";
  };
  CHECK(read(make_file(header_with(100'000), 0)).tensors.size() == 99'999);
  check_refused(make_file(header_with(100'001), 0), "at most 100000 entries");
}

TEST_CASE("read_safetensors: a named pipe is refused without waiting for it") {
  const test::ScratchFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(read_safetensors(folder / "pipe"), doctest::Contains("not a regular file"),
                       FormatError);
}

TEST_CASE("read_safetensors: a flipped bit in the header is refused or harmless") {
  const test::ScratchFolder folder;
  write_safetensors(folder / "all", tensors_of_all_types(), {{"a", "b"}});
  const std::string bytes = test::slurp(folder / "all");
  const std::size_t header = 8 + static_cast<unsigned char>(bytes[0]) +
                             256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[1]));
  const std::size_t tensors = tensors_of_all_types().size();
  std::size_t refused = 0;
  for (std::size_t i = 0; i < header; ++i) {
    for (std::size_t bit = i < 8 ? 0 : i % 8; bit < 8; bit += i < 8 ? 1 : 8) {
      const std::string damaged = test::with_flipped_bit(bytes, 8 * i + bit);
      std::size_t found = tensors;
      try {
        // A changed name, metadata or equally wide dtype is still a valid file.
        found = read(damaged).tensors.size();
      } catch (const FormatError&) {
        ++refused;
      }
      CHECK(found == tensors);
    }
  }
  CHECK(refused > header / 2);
}

}  // namespace ql::weights
