#include "machine/onednn_product.h"

#include <stdexcept>

#if defined(QL_ONEDNN)

#include <array>
#include <cstdint>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

namespace ql::machine {
namespace {

using Type = dnnl::memory::data_type;

// Decides which primitive computes a product.
using Shape = std::array<std::int64_t, 10>;

struct Primitive {
  dnnl::memory::desc a, b, result;
  dnnl::matmul product;
};

// More shapes than a training or an evaluation has.
constexpr std::size_t kMostPrimitives = 512;

dnnl::engine& engine() {
  static dnnl::engine only(dnnl::engine::kind::cpu, 0);
  return only;
}

dnnl::memory::desc describe(const at::Tensor& matrix, Type type) {
  return {{matrix.size(0), matrix.size(1)}, type, {matrix.stride(0), matrix.stride(1)}};
}

Primitive make_primitive(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                         bool add) {
  const Type type = a.scalar_type() == at::kBFloat16 ? Type::bf16 : Type::f32;
  Primitive made{describe(a, type), describe(b, type), describe(result, Type::f32), {}};
  dnnl::primitive_attr attributes;
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine(), made.a, made.b, made.result, attributes);
#else
  const dnnl::matmul::primitive_desc description({made.a, made.b, made.result}, attributes,
                                                 engine());
#endif
  made.product = dnnl::matmul(description);
  return made;
}

// A thread has primitives of its own, and need not wait for others. Making one takes longer than a
// small product.
const Primitive& find_primitive(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                                bool add) {
  thread_local std::map<Shape, Primitive> known;
  const Shape shape = {a.size(0),   a.size(1),        b.size(1),
                       a.stride(0), a.stride(1),      b.stride(0),
                       b.stride(1), result.stride(0), a.scalar_type() == at::kBFloat16 ? 1 : 0,
                       add ? 1 : 0};
  const auto found = known.find(shape);
  if (found != known.end()) return found->second;
  if (known.size() >= kMostPrimitives) known.clear();
  return known.emplace(shape, make_primitive(result, a, b, add)).first->second;
}

}  // namespace

void multiply_by_onednn(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add) {
  try {
    const Primitive& primitive = find_primitive(result, a, b, add);
    thread_local dnnl::stream stream(engine());
    primitive.product.execute(
        stream, {{DNNL_ARG_SRC, dnnl::memory(primitive.a, engine(), a.data_ptr())},
                 {DNNL_ARG_WEIGHTS, dnnl::memory(primitive.b, engine(), b.data_ptr())},
                 {DNNL_ARG_DST, dnnl::memory(primitive.result, engine(), result.data_ptr())}});
  } catch (const dnnl::error& error) {
    throw std::logic_error(error.message);
  }
}

}  // namespace ql::machine

#else

namespace ql::machine {

void multiply_by_onednn(at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  throw std::logic_error("this program was built without oneDNN");
}

}  // namespace ql::machine

#endif
