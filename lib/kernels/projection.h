// Multiplies states by a weight matrix, as a layer's linear maps do.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

// Returns what at::linear() does: `states` [..., width] times the transpose of `weight` [columns,
// width], plus `bias` [columns] unless that is undefined. On the CPU, without gradients, the
// product is divided into pieces (machine/pieces.h), so that its bits do not depend on the number
// of threads.
at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias = {});

// While it lives, project() in this thread computes on the CPU, without gradients, by a kernel of
// our own. It reads every weight once, where a BLAS, which copies weights first, is slow for few
// rows. And a row's numbers do not depend on the other rows, nor on how many there are, to the last
// bit: rows that are computed side by side are what each would be alone. Others who compute for
// several streams ask live(), and do the same.
class RowsApart {
 public:
  RowsApart();
  ~RowsApart();
  RowsApart(const RowsApart&) = delete;
  RowsApart& operator=(const RowsApart&) = delete;

  static bool live();

 private:
  bool before_;
};

}  // namespace ql::kernels
