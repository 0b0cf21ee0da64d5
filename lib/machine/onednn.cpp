// Multiplies matrices with oneDNN, and keeps prepared operations (primitives) for later products.

#include "machine/onednn.h"

#include <stdexcept>

#if defined(QL_ONEDNN)

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace ql::machine {

namespace {

using Type = dnnl::memory::data_type;

// A Shape has the sizes, strides and flags that decide which primitive computes a matrix product.
using Shape = std::array<std::int64_t, 12>;

// Holds a oneDNN primitive. The memories in `arguments` point to the tensors of the current matrix
// product.
struct Primitive {
  dnnl::matmul product;
  std::unordered_map<int, dnnl::memory> arguments;
  std::int64_t last_use = 0;
};

// A cache (find_primitive()) holds at most this many primitives. A network has fewer shapes than
// this. But the numbers of rows in the clusters of an adaptive softmax change in every step, and so
// each step may add primitives.
constexpr std::size_t kMostPrimitives = 512;

dnnl::engine& engine() {
  static dnnl::engine only(dnnl::engine::kind::cpu, 0);
  return only;
}

// The stride of a dimension of size 1 has no meaning, so LibTorch may set it to any value. If the
// value is small, oneDNN 3.7 takes it for the distance between rows or columns. So this function
// makes this stride as long as the matrix.
dnnl::memory::desc describe(const at::Tensor& matrix, Type type) {
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  dnnl::memory::dims strides = {matrix.stride(0), matrix.stride(1)};
  if (rows == 1) strides[0] = columns * strides[1];
  if (columns == 1) strides[1] = rows * strides[0];
  return {{rows, columns}, type, strides};
}

Primitive make_primitive(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                         bool add, const at::Tensor& bias) {
  const Type type = a.scalar_type() == at::kBFloat16 ? Type::bf16 : Type::f32;
  const dnnl::memory::desc of_a = describe(a, type), of_b = describe(b, type);
  const dnnl::memory::desc of_result =
      describe(result, result.scalar_type() == at::kBFloat16 ? Type::bf16 : Type::f32);
  const dnnl::memory::desc of_bias =
      bias.defined() ? describe(bias.unsqueeze(0), Type::f32) : dnnl::memory::desc();
  dnnl::primitive_attr attributes;
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine(), of_a, of_b, of_bias, of_result,
                                                 attributes);
#else
  const dnnl::matmul::primitive_desc description({of_a, of_b, of_bias, of_result}, attributes,
                                                 engine());
#endif
  Primitive made{dnnl::matmul(description), {}, 0};
  const auto memory = [](const dnnl::memory::desc& of) {
    return dnnl::memory(of, engine(), DNNL_MEMORY_NONE);
  };
  made.arguments = {{DNNL_ARG_SRC, memory(of_a)},
                    {DNNL_ARG_WEIGHTS, memory(of_b)},
                    {DNNL_ARG_DST, memory(of_result)}};
  if (bias.defined()) made.arguments.emplace(DNNL_ARG_BIAS, memory(of_bias));
  return made;
}

// Returns a primitive from the cache of this thread; every thread has its own cache, so that
// threads do not wait for each other. Making a primitive takes longer than a small matrix product.
Primitive& find_primitive(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                          bool add, const at::Tensor& bias) {
  using Known = std::map<Shape, Primitive>;
  thread_local Known known;
  thread_local std::int64_t uses = 0;
  const Shape shape = {a.size(0),
                       a.size(1),
                       b.size(1),
                       a.stride(0),
                       a.stride(1),
                       b.stride(0),
                       b.stride(1),
                       result.stride(0),
                       a.scalar_type() == at::kBFloat16 ? 1 : 0,
                       result.scalar_type() == at::kBFloat16 ? 1 : 0,
                       add ? 1 : 0,
                       bias.defined() ? 1 : 0};
  auto found = known.find(shape);
  if (found == known.end()) {
    if (known.size() >= kMostPrimitives) {
      known.erase(
          std::min_element(known.begin(), known.end(),
                           [](const Known::value_type& one, const Known::value_type& other) {
                             return one.second.last_use < other.second.last_use;
                           }));
    }
    found = known.emplace(shape, make_primitive(result, a, b, add, bias)).first;
  }
  found->second.last_use = ++uses;
  return found->second;
}

}  // namespace

void multiply_by_onednn(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                        const at::Tensor& bias) {
  try {
    Primitive& primitive = find_primitive(result, a, b, add, bias);
    const auto point_to = [&](int argument, const at::Tensor& tensor) {
      primitive.arguments.at(argument).set_data_handle(tensor.data_ptr());
    };
    point_to(DNNL_ARG_SRC, a);
    point_to(DNNL_ARG_WEIGHTS, b);
    point_to(DNNL_ARG_DST, result);
    if (bias.defined()) point_to(DNNL_ARG_BIAS, bias);
    thread_local dnnl::stream stream(engine());
    primitive.product.execute(stream, primitive.arguments);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw std::logic_error(error.message);
  }
}

}  // namespace ql::machine

#else

namespace ql::machine {

void multiply_by_onednn(at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                        const at::Tensor&) {
  throw std::logic_error("this program was built without oneDNN");
}

}  // namespace ql::machine

#endif
